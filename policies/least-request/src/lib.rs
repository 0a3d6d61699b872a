//! Policy: the worker with the fewest requests in flight, by weight.

use conductor_policy_sdk::{Call, Host, Params, Plan, Policy, Verdict, WorkerLoad, export_policy};

/// Policy: the fewest requests in flight.
#[derive(Debug)]
pub struct LeastRequest {
    load: WorkerLoad,
}

impl Policy for LeastRequest {
    const NAME: &'static str = "least-request";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(_: &mut Params, plan: &mut Plan) -> Self {
        Self {
            load: WorkerLoad::requests(plan),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        Verdict::route_to(self.load.least(call, host))
    }
}

export_policy!(LeastRequest);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    #[test]
    fn takes_the_fewest_requests_for_the_weight_however_long_they_are() {
        let policy = Configured::<LeastRequest>::new("{}").unwrap();
        let mut fleet = Scenario::new(["a", "b"]);
        fleet
            .set("a", "load.requests", 3.0)
            .set("b", "load.requests", 2.0);
        fleet.set("b", "load.prefill-tokens", 100_000.0);
        assert_eq!(fleet.route(&policy), Some("b"));
        fleet.set("a", "worker.weight", 2.0);
        assert_eq!(fleet.route(&policy), Some("a"));
    }

    #[test]
    fn requests_that_pile_up_are_shared_by_weight() {
        let policy = Configured::<LeastRequest>::new("{}").unwrap();
        let mut fleet = Scenario::new(["small", "big"]);
        fleet.set("big", "worker.weight", 4.0);
        let mut big = 0;
        for _ in 0..500 {
            let name = fleet.route(&policy).unwrap().to_owned();
            big += u32::from(name == "big");
            fleet.add(&name, "load.requests", 1.0);
        }
        assert!((398..=402).contains(&big), "{big}");
    }
}
