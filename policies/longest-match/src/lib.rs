//! Policy: the worker with the longest prefix match. It is a teaching example: if all prompts begin alike, it
//! sends all of them to one worker. README.md explains the reason.

use conductor_policy_sdk::{
    Call, Column, Host, OptionalNumber, Params, Plan, Policy, RequestNumber, Row, Verdict, export_policy,
};

/// Policy: the longest prefix match; ties go to the worker with the fewest requests.
#[derive(Debug)]
pub struct LongestMatch {
    best: RequestNumber,
    matched: Column,
    requests: Column,
}

impl Policy for LongestMatch {
    const NAME: &'static str = "longest-match";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(_: &mut Params, plan: &mut Plan) -> Self {
        Self {
            best: plan.request("prefix.best-tokens"),
            matched: plan.column("prefix.any-tokens"),
            requests: plan.column("load.requests"),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let best = call.number(self.best).known_or(0.0);
        let load = |row: &Row<'_>| {
            let is_longest = row.get(self.matched).known_or(0.0) >= best;
            // A NaN cost is never chosen.
            if is_longest {
                row.get(self.requests)
            } else {
                f64::NAN
            }
        };
        Verdict::route_to(call.least(|| host.random(), load))
    }
}

export_policy!(LongestMatch);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured() -> Configured<LongestMatch> {
        Configured::new("{}").unwrap()
    }

    #[test]
    fn the_longest_match_wins_regardless_of_load() {
        let mut fleet = Scenario::new(["a", "b", "c"]);
        fleet.holds("a", 512.0).holds("b", 1_024.0);
        fleet.set("b", "load.requests", 500.0);
        assert_eq!(fleet.route(&configured()), Some("b"));
    }

    #[test]
    fn ties_go_to_the_least_loaded_and_an_unknown_match_counts_as_zero() {
        let mut fleet = Scenario::new(["a", "b", "c"]);
        fleet
            .holds("a", 512.0)
            .holds("b", 512.0)
            .set("a", "load.requests", 3.0);
        assert_eq!(fleet.route(&configured()), Some("b"));
        let mut fleet = Scenario::new(["a", "b"]);
        fleet.holds("a", 0.0).set("a", "load.requests", 1.0);
        assert_eq!(fleet.route(&configured()), Some("b"));
    }

    #[test]
    fn prompts_that_all_begin_alike_go_to_one_worker() {
        let policy = configured();
        let mut fleet = Scenario::new(["a", "b", "c", "d"]);
        let first = fleet.route(&policy).unwrap().to_owned();
        fleet.holds(&first, 64.0);
        for _ in 0..100 {
            fleet.add(&first, "load.requests", 1.0);
            assert_eq!(fleet.route(&policy), Some(&*first));
        }
    }
}
