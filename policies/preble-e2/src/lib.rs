//! Policy: Preble's E2: exploits a match of more than half of the prompt, else explores by load and work.
//!
//! README.md lists the differences from the paper: loads are requests in flight, and eviction costs are
//! unknown.

use conductor_policy_sdk::{Call, Forecast, Host, Params, Plan, Policy, Row, Verdict, export_policy};

/// Policy: exploits a long match, else explores.
#[derive(Debug)]
pub struct PrebleE2 {
    forecast: Forecast,
    /// Ratio to the least load above which a holder is not exploited.
    balance: f64,
}

impl Policy for PrebleE2 {
    const NAME: &'static str = "preble-e2";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            forecast: Forecast::configure(params, plan),
            balance: params
                .about("Ratio to the least loaded worker's load above which a holder is not exploited.")
                .number("balance-threshold", 15.0, 1.0..=1_000_000.0),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let forecast = self.forecast.of(call);
        let best = forecast.best();
        if best > forecast.prompt() - best {
            // A NaN cost is never chosen.
            let load = |row: &Row<'_>| match forecast.matched(row) >= best {
                true => forecast.queue(row),
                false => f64::NAN,
            };
            let holder = call.least(|| host.random(), load);
            let most = self.balance * call.smallest(|row| forecast.queue(row));
            if holder.is_some_and(|holder| holder.cost <= most) {
                return Verdict::route_to(holder);
            }
        }
        let cost = |row: &Row<'_>| forecast.queue(row) + forecast.prefill(row);
        Verdict::route_to(call.least(|| host.random(), cost))
    }
}

export_policy!(PrebleE2);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured(params: &str) -> Configured<PrebleE2> {
        Configured::new(params).unwrap()
    }

    /// Builds a fleet for a prompt of 1,000 tokens, of which `a` holds `held`; each worker has 100 tokens
    /// queued.
    fn fleet(held: f64) -> Scenario {
        let mut fleet = Scenario::new(["a", "b", "c"]);
        fleet.request("request.prompt-tokens", 1_000.0).holds("a", held);
        for name in ["a", "b", "c"] {
            fleet.set(name, "load.prefill-tokens", 100.0);
        }
        fleet
    }

    #[test]
    fn more_than_half_is_exploited_and_less_is_explored() {
        let mut fleet = fleet(501.0);
        fleet.set("a", "load.prefill-tokens", 1_400.0);
        assert_eq!(fleet.route(&configured("{}")), Some("a"));
        fleet.holds("a", 500.0).set("c", "load.prefill-tokens", 99.0);
        assert_eq!(fleet.route(&configured("{}")), Some("c"));
    }

    #[test]
    fn a_holder_far_over_the_least_load_is_not_exploited() {
        let mut fleet = fleet(900.0);
        fleet.set("a", "load.prefill-tokens", 1_501.0);
        fleet.set("b", "load.prefill-tokens", 120.0);
        assert_eq!(fleet.route(&configured("{}")), Some("c"));
        assert_eq!(
            fleet.route(&configured(r#"{"balance-threshold": 20}"#)),
            Some("a")
        );
    }

    #[test]
    fn of_several_holders_the_least_loaded_is_exploited() {
        let mut fleet = fleet(900.0);
        fleet.holds("b", 900.0).set("a", "load.prefill-tokens", 101.0);
        fleet.set("c", "load.prefill-tokens", 90.0);
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
    }

    #[test]
    fn exploring_sums_load_and_work_in_predicted_time_where_it_is_known() {
        let mut fleet = fleet(0.0);
        fleet.set("c", "load.prefill-tokens", 99.0);
        for (name, token_ms, prefill_ms) in [("a", 0.1, 100.0), ("b", 0.2, 70.0), ("c", 0.2, 91.0)] {
            fleet
                .set(name, "cost.token-ms", token_ms)
                .set(name, "cost.prefill-ms", prefill_ms);
        }
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
        assert_eq!(
            fleet.route(&configured(r#"{"predicted-times": false}"#)),
            Some("c")
        );
    }
}
