//! Policy: the least predicted time to first token, plus a price for the delay of waiting requests.
//!
//! `cost = T_queue + (x + T_prefill) * (1 + price * k)`. README.md compares it with `cache-aware`, its form
//! in tokens.

use conductor_policy_sdk::{
    Call, Column, Forecast, Host, Params, Plan, Policy, PrefixFetch, Row, Verdict, export_policy,
};

/// Policy: the least predicted time to first token, with a price for the delay of waiting requests.
#[derive(Debug)]
pub struct PricedTtft {
    forecast: Forecast,
    prefix_fetch: PrefixFetch,
    queued: Column,
    /// Price of one waiting request's delay, as a share of this request's work.
    backlog_price: f64,
    /// Fixed cost of a request (x), in tokens.
    request_tokens: f64,
}

impl Policy for PricedTtft {
    const NAME: &'static str = "priced-ttft";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        plan.name_hash();
        Self {
            forecast: Forecast::configure(params, plan),
            prefix_fetch: PrefixFetch::configure(params, 1.0),
            queued: plan.column("load.queued"),
            backlog_price: params
                .unit("share")
                .about("Price of delaying one waiting request; 0 ignores waiting requests.")
                .number("backlog-price", 1.0, 0.0..=100.0),
            request_tokens: params
                .unit("tokens")
                .about("Fixed cost of a request if no times are predicted; predictions include it.")
                .number("request-tokens", 128.0, 0.0..=1_000_000.0),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let forecast = self.forecast.of(call);
        let cost = |row: &Row<'_>| {
            let own = forecast.overhead(row, self.request_tokens) + self.prefix_fetch.prefill(&forecast, row);
            forecast.queue(row) + own * (1.0 + self.backlog_price * row.get(self.queued))
        };
        let salt = || call.request().session.unwrap_or_else(|| host.random());
        Verdict::route_to(call.least(salt, cost))
    }
}

export_policy!(PricedTtft);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured(params: &str) -> Configured<PricedTtft> {
        Configured::new(params).unwrap()
    }

    /// Builds a fleet with many short prompts queued at `short` and a long one at `long`: 310 and 600 ms.
    fn fleet(prefill_ms: f64) -> Scenario {
        let mut fleet = Scenario::new(["short", "long"]);
        for (name, requests, tokens) in [("short", 6.0, 3_100.0), ("long", 1.0, 6_000.0)] {
            fleet
                .set(name, "load.requests", requests)
                .set(name, "load.prefill-tokens", tokens)
                .set(name, "cost.token-ms", 0.1)
                .set(name, "cost.prefill-ms", prefill_ms);
        }
        fleet
    }

    #[test]
    fn a_long_prompt_goes_where_few_wait_behind_it() {
        assert_eq!(fleet(50.0).route(&configured("{}")), Some("short"));
        assert_eq!(fleet(60.0).route(&configured("{}")), Some("long"));
        let greedy = configured(r#"{"backlog-price": 0}"#);
        assert_eq!(fleet(900.0).route(&greedy), Some("short"));
    }

    #[test]
    fn a_slow_worker_is_known_by_its_predictions() {
        let mut fleet = fleet(60.0);
        fleet.set("long", "cost.prefill-ms", 120.0);
        assert_eq!(fleet.route(&configured("{}")), Some("short"));
    }

    #[test]
    fn without_predictions_a_request_has_a_cost_of_its_own() {
        let policy = configured(r#"{"predicted-times": false}"#);
        let mut fleet = fleet(0.0);
        // 3,100 + 128 * 7 is less than 6,000 + 128 * 2.
        assert_eq!(fleet.route(&policy), Some("short"));
        let dear = configured(r#"{"predicted-times": false, "request-tokens": 600}"#);
        assert_eq!(fleet.route(&dear), Some("long"));
    }

    #[test]
    fn with_fetching_a_holder_saves_no_more_than_the_transfer() {
        let mut fleet = Scenario::new(["holder", "idle"]);
        fleet
            .request("request.prompt-tokens", 2_000.0)
            .holds("holder", 1_500.0)
            .set("holder", "load.prefill-tokens", 1_000.0);
        assert_eq!(fleet.route(&configured("{}")), Some("holder"));
        assert_eq!(
            fleet.route(&configured(r#"{"transfer-share": 0.04}"#)),
            Some("idle")
        );
    }
}
