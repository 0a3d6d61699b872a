//! Policy: the least sum of prefill and decode work including this request, as in the KV router of NVIDIA
//! Dynamo.
//!
//! `cost = scale * (P + prompt - credit * matched) + A + d * requests`. The unit is tokens or predicted
//! times; Dynamo counts blocks. README.md lists the differences.

use conductor_policy_sdk::{
    Call, CallForecast, Column, Forecast, Host, Params, Phase, Plan, Policy, Row, TierMatches, Verdict,
    export_policy,
};

/// Policy: the least prefill and decode work.
#[derive(Debug)]
pub struct DynamoKvCost {
    forecast: Forecast,
    tiers: TierMatches,
    decoding_tokens: Column,
    requests: Column,
    /// Weight of a token to compute, relative to a token that decoding reads.
    prefill_scale: f64,
    /// Credit of a matched token, relative to a computed one.
    overlap_credit: f64,
    /// Weight of a request in flight, besides its tokens.
    request_tokens: f64,
}

impl Policy for DynamoKvCost {
    const NAME: &'static str = "dynamo-kv-cost";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            forecast: Forecast::configure(params, plan),
            decoding_tokens: plan.column("load.decoding-tokens"),
            requests: plan.column("load.requests"),
            prefill_scale: params
                .about("Weight of a token to compute, relative to a token that decoding reads.")
                .number("prefill-load-scale", 1.0, 0.0..=1_000.0),
            overlap_credit: params
                .unit("share")
                .about("Credit of a matched token, relative to a computed one; 0 ignores matches.")
                .number("overlap-credit", 1.0, 0.0..=1.0),
            request_tokens: params
                .unit("tokens")
                .about("Weight of a request in flight, besides its tokens.")
                .number("request-tokens", 0.0, 0.0..=1_000_000.0),
            tiers: TierMatches::configure(params, plan),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let forecast = self.forecast.of(call);
        let computes = call.request().phase != Phase::Decode;
        let cost = |row: &Row<'_>| {
            let prefill = if computes {
                self.prefill(&forecast, row)
            } else {
                0.0
            };
            let decode = row.get(self.decoding_tokens) + self.request_tokens * row.get(self.requests);
            prefill + forecast.work(row, decode)
        };
        Verdict::route_to(call.least(|| host.random(), cost))
    }
}

impl DynamoKvCost {
    /// Returns the prefill work on the worker including this prompt. The part of a match that is not credited
    /// counts as work.
    fn prefill(&self, forecast: &CallForecast, row: &Row<'_>) -> f64 {
        let credit = self.overlap_credit * self.tiers.matched(row).unwrap_or(0.0);
        let not_credited = forecast.work(row, forecast.matched(row) - credit);
        self.prefill_scale * (forecast.queue(row) + forecast.prefill(row) + not_credited)
    }
}

export_policy!(DynamoKvCost);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured(params: &str) -> Configured<DynamoKvCost> {
        Configured::new(params).unwrap()
    }

    /// Builds a fleet for a prompt of 1,000 tokens, of which `a` has 600 cached.
    fn fleet() -> Scenario {
        let mut fleet = Scenario::new(["a", "b"]);
        fleet
            .request("request.prompt-tokens", 1_000.0)
            .holds("a", 600.0)
            .holds("b", 0.0);
        fleet
    }

    #[test]
    fn a_match_offsets_the_same_number_of_tokens_of_load() {
        let mut fleet = fleet();
        fleet
            .set("a", "load.prefill-tokens", 300.0)
            .set("a", "load.decoding-tokens", 299.0);
        assert_eq!(fleet.route(&configured("{}")), Some("a"));
        fleet.set("a", "load.decoding-tokens", 301.0);
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
        let twice = configured(r#"{"prefill-load-scale": 2}"#);
        assert_eq!(fleet.route(&twice), Some("a"), "600 + 301 against 1,200");
        let blind = configured(r#"{"overlap-credit": 0}"#);
        assert_eq!(
            fleet.set("a", "load.decoding-tokens", 0.0).route(&blind),
            Some("b")
        );
    }

    #[test]
    fn slower_tiers_are_worth_less() {
        let mut fleet = fleet();
        fleet
            .set("b", "prefix.host-tokens", 780.0)
            .set("b", "prefix.any-tokens", 780.0);
        assert_eq!(fleet.route(&configured("{}")), Some("a"), "585 on the device");
        let near = configured(r#"{"host-worth": 0.8}"#);
        assert_eq!(fleet.route(&near), Some("b"), "624 on the device");
    }

    #[test]
    fn predicted_times_count_where_they_are_known() {
        let mut fleet = fleet();
        for (name, token_ms, prefill_ms) in [("a", 0.5, 250.0), ("b", 0.2, 240.0)] {
            fleet
                .set(name, "cost.token-ms", token_ms)
                .set(name, "cost.prefill-ms", prefill_ms);
        }
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
        fleet.set("b", "load.decoding-tokens", 60.0);
        assert_eq!(fleet.route(&configured("{}")), Some("a"), "12 ms of reading");
        let tokens = configured(r#"{"predicted-times": false}"#);
        fleet.set("b", "load.decoding-tokens", 0.0);
        assert_eq!(fleet.route(&tokens), Some("a"));
    }

    #[test]
    fn a_decode_leg_is_placed_by_decode_work_alone() {
        let mut fleet = fleet();
        fleet.phase(Phase::Decode);
        fleet
            .set("a", "load.decoding-tokens", 10.0)
            .set("b", "load.requests", 1.0);
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
        assert_eq!(fleet.route(&configured(r#"{"request-tokens": 11}"#)), Some("a"));
    }
}
