//! Policy: the least product of new prompt tokens and batch size (LMetric), which has no weights to tune.
//!
//! `score = u * (requests + 1)`; ties go to the shorter queue. README.md explains this reading of the paper.

use conductor_policy_sdk::{
    Call, Column, Host, Params, Plan, Policy, PrefixMatches, Row, Verdict, export_policy,
};

/// Policy: the least product of new prompt tokens and batch size.
#[derive(Debug)]
pub struct Lmetric {
    prefix: PrefixMatches,
    requests: Column,
    queued: Column,
    /// 1 if queued tokens count as new ones too, else 0.
    queue_share: f64,
}

impl Policy for Lmetric {
    const NAME: &'static str = "lmetric";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let counts_queue = params
            .about("Queued tokens of the worker count besides those of this prompt.")
            .flag("count-queued", false);
        Self {
            prefix: PrefixMatches::new(plan),
            requests: plan.column("load.requests"),
            queued: plan.column("load.prefill-tokens"),
            queue_share: f64::from(u8::from(counts_queue)),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let prompt = self.prefix.prompt(call);
        let score = |row: &Row<'_>| {
            let tokens = self.prefix.uncached(prompt, row) + self.queue_share * row.get(self.queued);
            tokens * (row.get(self.requests) + 1.0)
        };
        let least = call.smallest(score);
        // A NaN cost is never chosen.
        let queue = |row: &Row<'_>| {
            if score(row) <= least {
                row.get(self.queued)
            } else {
                f64::NAN
            }
        };
        let chosen = call.least(|| host.random(), queue);
        chosen.map_or(Verdict::Pass, |chosen| Verdict::Route {
            row: chosen.row,
            score: -least,
        })
    }
}

export_policy!(Lmetric);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured(params: &str) -> Configured<Lmetric> {
        Configured::new(params).unwrap()
    }

    /// Builds a fleet for a prompt of 1,000 tokens.
    fn fleet() -> Scenario {
        let mut fleet = Scenario::new(["a", "b"]);
        fleet.request("request.prompt-tokens", 1_000.0);
        fleet
    }

    #[test]
    fn half_of_the_tokens_are_worth_twice_the_batch() {
        let mut fleet = fleet();
        fleet
            .holds("a", 500.0)
            .holds("b", 0.0)
            .set("a", "load.requests", 2.0)
            .set("b", "load.requests", 1.0);
        assert_eq!(fleet.route(&configured("{}")), Some("a"));
        fleet.set("a", "load.requests", 4.0);
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
    }

    #[test]
    fn ties_go_to_the_shorter_queue() {
        let mut fleet = fleet();
        fleet
            .set("a", "load.prefill-tokens", 9_000.0)
            .set("b", "load.prefill-tokens", 8_000.0);
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
        fleet.request("request.prompt-tokens", 0.0);
        fleet.set("b", "load.requests", 9.0);
        assert_eq!(fleet.route(&configured("{}")), Some("b"), "nothing to compute");
    }

    #[test]
    fn the_queue_counts_if_enabled() {
        let mut fleet = fleet();
        fleet
            .set("a", "load.prefill-tokens", 9_000.0)
            .set("b", "load.requests", 1.0);
        assert_eq!(fleet.route(&configured("{}")), Some("a"));
        assert_eq!(fleet.route(&configured(r#"{"count-queued": true}"#)), Some("b"));
    }
}
