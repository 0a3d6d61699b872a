//! Policy: the longest match while loads are balanced, else the least load, as `cache_aware` of SGLang's
//! router.
//!
//! It has three modes with hard switches between them. README.md lists the differences from the original.

use conductor_policy_sdk::{
    Call, Column, Host, OptionalNumber, Params, Plan, Policy, PrefixMatches, Row, Verdict, export_policy,
};

/// Policy: the longest match while loads are balanced.
#[derive(Debug)]
pub struct SglangCacheAware {
    prefix: PrefixMatches,
    requests: Column,
    blocks: Column,
    /// Difference in requests between the most and the least loaded worker above which loads are unbalanced,
    balance_abs: f64,
    /// and the ratio of these requests that must be exceeded too.
    balance_rel: f64,
    /// Share of the prompt above which a match is followed.
    cache_threshold: f64,
}

impl Policy for SglangCacheAware {
    const NAME: &'static str = "sglang-cache-aware";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            prefix: PrefixMatches::new(plan),
            requests: plan.column("load.requests"),
            blocks: plan.column("cache.blocks"),
            balance_abs: params
                .unit("requests")
                .about("Difference in requests between the most and the least loaded worker above which loads are unbalanced.")
                .number("balance-abs-threshold", 64.0, 0.0..=1_000_000.0),
            balance_rel: params
                .about("Ratio of these requests that must be exceeded too.")
                .number("balance-rel-threshold", 1.5, 1.0..=1_000_000.0),
            cache_threshold: params
                .unit("share")
                .about("Share of the prompt above which a match is followed.")
                .number("cache-threshold", 0.3, 0.0..=1.0),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let least_loaded = |is_eligible: &dyn Fn(&Row<'_>) -> bool| {
            // A NaN cost is never chosen.
            let load = |row: &Row<'_>| {
                if is_eligible(row) {
                    self.load(row)
                } else {
                    f64::NAN
                }
            };
            Verdict::route_to(call.least(|| host.random(), load))
        };
        let best = self.prefix.best(call);
        if self.is_unbalanced(call) {
            least_loaded(&|_| true)
        } else if best > self.cache_threshold * self.prefix.prompt(call) {
            least_loaded(&|row| self.prefix.matched(row) >= best)
        } else {
            let smallest = call.smallest(|row| self.cached(row));
            least_loaded(&|row| self.cached(row) <= smallest)
        }
    }
}

impl SglangCacheAware {
    fn load(&self, row: &Row<'_>) -> f64 {
        row.get(self.requests)
    }

    /// Returns the size of the worker's cache; 0 if it is unknown.
    fn cached(&self, row: &Row<'_>) -> f64 {
        row.get(self.blocks).known_or(0.0)
    }

    fn is_unbalanced(&self, call: &Call<'_>) -> bool {
        let (most, least) = (
            call.greatest(|row| self.load(row)),
            call.smallest(|row| self.load(row)),
        );
        most - least > self.balance_abs && most > self.balance_rel * least
    }
}

export_policy!(SglangCacheAware);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured(params: &str) -> Configured<SglangCacheAware> {
        Configured::new(params).unwrap()
    }

    /// Builds a fleet for a prompt of 1,000 tokens, of which `b` has 400; `c` has the smallest cache.
    fn fleet() -> Scenario {
        let mut fleet = Scenario::new(["a", "b", "c"]);
        fleet.request("request.prompt-tokens", 1_000.0);
        for (name, matched, blocks) in [("a", 100.0, 50.0), ("b", 400.0, 70.0), ("c", 0.0, 20.0)] {
            fleet.holds(name, matched).set(name, "cache.blocks", blocks);
        }
        fleet
    }

    #[test]
    fn a_long_match_is_followed_and_a_short_one_is_not() {
        let mut fleet = fleet();
        fleet
            .set("b", "load.requests", 64.0)
            .set("c", "load.requests", 3.0);
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
        fleet.holds("b", 300.0);
        assert_eq!(fleet.route(&configured("{}")), Some("c"), "the smallest cache");
    }

    #[test]
    fn unbalanced_loads_come_before_the_cache() {
        let mut fleet = fleet();
        fleet.set("b", "load.requests", 65.0);
        fleet.set("c", "load.requests", 1.0);
        assert_eq!(fleet.route(&configured("{}")), Some("a"));
        // The same difference is below the ratio of 1.5.
        fleet
            .add("a", "load.requests", 200.0)
            .add("b", "load.requests", 200.0)
            .add("c", "load.requests", 200.0);
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
        let tight = r#"{"balance-abs-threshold": 32, "balance-rel-threshold": 1.1}"#;
        assert_eq!(fleet.route(&configured(tight)), Some("a"));
    }

    #[test]
    fn ties_of_matches_and_of_caches_go_to_the_less_loaded() {
        let mut fleet = fleet();
        fleet.holds("a", 400.0).set("a", "load.requests", 1.0);
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
        let mut unknown = Scenario::new(["a", "b"]);
        unknown.set("a", "load.requests", 1.0);
        assert_eq!(unknown.route(&configured("{}")), Some("b"));
    }
}
