//! Policy: the least loaded worker, by weight.
//!
//! `cost = (requests + 1 + prompt-tokens / request-tokens) / weight`, least first, ties at random. The loads
//! are this router's own and current, so the minimum needs no random sampling against herding.

use conductor_policy_sdk::{Call, Column, Host, Params, Plan, Policy, Verdict, export_policy};

/// Policy: the least loaded worker, by weight.
#[derive(Debug)]
pub struct LoadWeighted {
    weight: Column,
    requests: Column,
    prompt_tokens: Column,
    /// Requests that equal one queued prompt token; 0 counts requests alone.
    requests_per_token: f64,
}

impl Policy for LoadWeighted {
    const NAME: &'static str = "load-weighted";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let request_tokens = params
            .unit("tokens")
            .about("Prompt tokens in flight that weigh as much as one request; 0 counts requests alone.")
            .number("request-tokens", 0.0, 0.0..=10_000_000.0);
        Self {
            weight: plan.column("worker.weight"),
            requests: plan.column("load.requests"),
            prompt_tokens: plan.column("load.prompt-tokens"),
            requests_per_token: if request_tokens > 0.0 {
                1.0 / request_tokens
            } else {
                0.0
            },
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let least = call.least(
            || host.random(),
            |row| {
                let tokens = row.get(self.prompt_tokens) * self.requests_per_token;
                (row.get(self.requests) + 1.0 + tokens) / row.get(self.weight)
            },
        );
        Verdict::route_to(least)
    }
}

export_policy!(LoadWeighted);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured(params: &str) -> Configured<LoadWeighted> {
        Configured::new(params).unwrap()
    }

    #[test]
    fn takes_the_fewest_requests_for_the_weight() {
        let policy = configured("{}");
        let mut fleet = Scenario::new(["a", "b"]);
        fleet
            .set("a", "load.requests", 3.0)
            .set("b", "load.requests", 2.0);
        assert_eq!(fleet.route(&policy), Some("b"));
        fleet.set("a", "worker.weight", 2.0);
        assert_eq!(fleet.route(&policy), Some("a"));
    }

    #[test]
    fn an_idle_fleet_is_used_evenly() {
        let policy = configured("{}");
        let names = ["a", "b", "c", "d"];
        let mut fleet = Scenario::new(names);
        let mut counts = [0_u32; 4];
        for _ in 0..4_000 {
            let name = fleet.route(&policy).unwrap();
            counts[usize::from(name.as_bytes()[0] - b'a')] += 1;
        }
        assert!(
            counts.iter().all(|count| (900..1_100).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn requests_that_pile_up_are_shared_by_weight() {
        let policy = configured("{}");
        let mut fleet = Scenario::new(["small", "big"]);
        fleet.set("big", "worker.weight", 3.0);
        let mut big = 0;
        for _ in 0..400 {
            let name = fleet.route(&policy).unwrap().to_owned();
            big += u32::from(name == "big");
            fleet.add(&name, "load.requests", 1.0);
        }
        assert!((298..=302).contains(&big), "{big}");
    }

    #[test]
    fn long_prompts_count_if_enabled() {
        let mut fleet = Scenario::new(["long", "short"]);
        fleet
            .set("long", "load.requests", 1.0)
            .set("long", "load.prompt-tokens", 30_000.0);
        fleet
            .set("short", "load.requests", 2.0)
            .set("short", "load.prompt-tokens", 200.0);
        assert_eq!(fleet.route(&configured("{}")), Some("long"));
        assert_eq!(
            fleet.route(&configured(r#"{"request-tokens": 1000}"#)),
            Some("short")
        );
    }
}
