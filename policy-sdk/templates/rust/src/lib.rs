//! least-queued: routes to the candidate with the fewest requests relative to its weight.

use conductor_policy_sdk::{Call, Column, Host, Params, Plan, Policy, Row, Verdict, export_policy};

/// Configured policy: the columns that it reads, and its parameter.
#[derive(Debug)]
pub struct LeastQueued {
    requests: Column,
    weight: Column,
    /// Requests of a full candidate; 0 means no limit.
    max_requests: f64,
}

impl Policy for LeastQueued {
    const NAME: &'static str = "least-queued";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            requests: plan.column("load.requests"),
            weight: plan.column("worker.weight"),
            max_requests: params
                .unit("requests")
                .about("Number of requests at which a candidate gets no more; 0 is no limit.")
                .number("max-requests", 0.0, 0.0..=1e6),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let least = call.least(|| host.random(), |row| self.cost(row));
        if least.is_none() && call.rows().any(|row| self.is_full(&row)) {
            // First come, first served: equal orders go by arrival.
            return Verdict::Queue { order: 0.0, ask_again_ms: 50 };
        }
        // If no load is known, this passes: the router's fallback decides.
        Verdict::route_to(least)
    }
}

impl LeastQueued {
    fn is_full(&self, row: &Row<'_>) -> bool {
        self.max_requests > 0.0 && row.get(self.requests) >= self.max_requests
    }

    /// Returns requests relative to the weight. A candidate whose cost is NaN is never chosen: a full one, and
    /// one with an unknown load. An unknown weight counts as 1.
    fn cost(&self, row: &Row<'_>) -> f64 {
        if self.is_full(row) {
            return f64::NAN;
        }
        let weight = row.get(self.weight);
        row.get(self.requests) / if weight > 0.0 { weight } else { 1.0 }
    }
}

export_policy!(LeastQueued);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    #[test]
    fn the_fewest_requests_win_and_a_full_fleet_holds_the_request() {
        let policy = Configured::<LeastQueued>::new(r#"{"max-requests": 8}"#).unwrap();
        let mut fleet = Scenario::new(["a", "b"]);
        fleet.set("a", "load.requests", 7.0).set("b", "load.requests", 3.0);
        assert_eq!(fleet.route(&policy), Some("b"));
        fleet.set("a", "load.requests", 8.0).set("b", "load.requests", 9.0);
        assert!(matches!(fleet.decide(&policy), Verdict::Queue { .. }));
    }
}
