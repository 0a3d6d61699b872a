//! Policy: the prefill and the decode work that a worker would have with the request, summed: the KV router of NVIDIA Dynamo.
//!
//! `cost = scale * (P + prompt - credit * matched) + A + d * requests`, in tokens or predicted times where Dynamo counts blocks;
//! README.md says what differs.

use conductor_policy_sdk::{
    Call, Column, Forecast, Host, Outlook, Params, Phase, Plan, Policy, Row, Tiers, Verdict, export_policy,
};

/// The least prefill and decode work.
#[derive(Debug)]
pub struct DynamoKvCost {
    forecast: Forecast,
    tiers: Tiers,
    decoding_tokens: Column,
    requests: Column,
    /// What a token to be computed weighs, of one that decoding reads.
    prefill_scale: f64,
    /// What a matched token is worth of a computed one.
    overlap_credit: f64,
    /// What a request in flight weighs besides its tokens.
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
                .about("What a token to be computed weighs, of one that decoding reads.")
                .number("prefill-load-scale", 1.0, 0.0..=1_000.0),
            overlap_credit: params
                .unit("share")
                .about("What a matched token is worth of a computed one; 0 goes by load alone.")
                .number("overlap-credit", 1.0, 0.0..=1.0),
            request_tokens: params
                .unit("tokens")
                .about("What a request in flight weighs besides its tokens.")
                .number("request-tokens", 0.0, 0.0..=1_000_000.0),
            tiers: Tiers::configure(params, plan),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let outlook = self.forecast.of(call);
        let computes = call.request().phase != Phase::Decode;
        let cost = |row: &Row<'_>| {
            let prefill = if computes {
                self.prefill(&outlook, row)
            } else {
                0.0
            };
            let decode = row.get(self.decoding_tokens) + self.request_tokens * row.get(self.requests);
            prefill + outlook.work(row, decode)
        };
        Verdict::route_to(call.least(|| host.random(), cost))
    }
}

impl DynamoKvCost {
    /// What is to be computed there with the prompt. What a match is worth less than computing it counts as work.
    fn prefill(&self, outlook: &Outlook, row: &Row<'_>) -> f64 {
        let credit = self.overlap_credit * self.tiers.matched(row).unwrap_or(0.0);
        let not_credited = outlook.work(row, outlook.matched(row) - credit);
        self.prefill_scale * (outlook.queue(row) + outlook.prefill(row) + not_credited)
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

    /// A prompt of 1,000 tokens of which `a` has 600.
    fn fleet() -> Scenario {
        let mut fleet = Scenario::new(["a", "b"]);
        fleet
            .request("request.prompt-tokens", 1_000.0)
            .holds("a", 600.0)
            .holds("b", 0.0);
        fleet
    }

    #[test]
    fn a_match_is_worth_as_many_tokens_of_load() {
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
    fn a_decode_leg_goes_by_what_decoding_reads() {
        let mut fleet = fleet();
        fleet.phase(Phase::Decode);
        fleet
            .set("a", "load.decoding-tokens", 10.0)
            .set("b", "load.requests", 1.0);
        assert_eq!(fleet.route(&configured("{}")), Some("b"));
        assert_eq!(fleet.route(&configured(r#"{"request-tokens": 11}"#)), Some("a"));
    }
}
