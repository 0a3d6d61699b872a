//! Policy: the worker with the fewest queued prompt tokens, by weight.

use conductor_policy_sdk::{Call, Host, Params, Plan, Policy, Verdict, WorkerLoad, export_policy};

/// Policy: the fewest queued prompt tokens.
#[derive(Debug)]
pub struct LeastTokens {
    load: WorkerLoad,
}

impl Policy for LeastTokens {
    const NAME: &'static str = "least-tokens";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(_: &mut Params, plan: &mut Plan) -> Self {
        Self {
            load: WorkerLoad::tokens(plan),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        Verdict::route_to(self.load.least(call, host))
    }
}

export_policy!(LeastTokens);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn least_tokens() -> Configured<LeastTokens> {
        Configured::new("{}").unwrap()
    }

    #[test]
    fn takes_the_fewest_queued_tokens_regardless_of_the_number_of_requests() {
        let mut fleet = Scenario::new(["a", "b"]);
        fleet
            .set("a", "load.requests", 9.0)
            .set("a", "load.prefill-tokens", 900.0);
        fleet
            .set("b", "load.requests", 1.0)
            .set("b", "load.prefill-tokens", 1_000.0);
        assert_eq!(fleet.route(&least_tokens()), Some("a"));
    }

    #[test]
    fn a_cached_prefix_of_this_prompt_is_ignored() {
        let mut fleet = Scenario::new(["a", "b"]);
        fleet
            .request("request.prompt-tokens", 4_000.0)
            .holds("a", 4_000.0);
        fleet.set("a", "load.prefill-tokens", 10.0);
        assert_eq!(fleet.route(&least_tokens()), Some("b"));
    }

    #[test]
    fn the_prompt_itself_counts_by_weight_known_or_estimated() {
        let mut fleet = Scenario::new(["slow", "fast"]);
        fleet
            .set("fast", "worker.weight", 2.0)
            .set("fast", "load.prefill-tokens", 500.0);
        for (feature, short, long) in [
            ("request.body-bytes", 1_600.0, 2_400.0),
            ("request.prompt-tokens", 400.0, 600.0),
        ] {
            assert_eq!(fleet.request(feature, short).route(&least_tokens()), Some("slow"));
            assert_eq!(fleet.request(feature, long).route(&least_tokens()), Some("fast"));
        }
    }

    #[test]
    fn an_idle_fleet_is_used_evenly() {
        let policy = least_tokens();
        let mut fleet = Scenario::new(["a", "b"]);
        let to_a = (0..1_000).filter(|_| fleet.route(&policy) == Some("a")).count();
        assert!((450..550).contains(&to_a), "{to_a}");
    }
}
