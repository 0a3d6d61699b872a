//! Policy: the least time to first token, with the best holder's prefix fetched if the worker's own is much
//! shorter. This is Algorithm 1 of the Mooncake paper.
//!
//! README.md defines the cost and lists the differences from the paper.

use conductor_policy_sdk::{
    Call, CallForecast, Column, Forecast, Host, Params, Phase, Plan, Policy, PrefixFetch, Row, Verdict,
    export_policy,
};

/// Transfer time of a token relative to its computation, by the paper's figures: 327,680 bytes at 87 GB/s
/// take 3.8 us, and computing a token takes about 0.1 ms.
const TRANSFER_SHARE: f64 = 0.04;

/// Policy: the least time to first token, with fetched prefixes.
#[derive(Debug)]
pub struct MooncakeAlg1 {
    forecast: Forecast,
    prefix_fetch: PrefixFetch,
    /// True if predictions leave out fetches, so that a fetch is subtracted here.
    subtracts_fetch: bool,
    /// Ratio of the best match to the own one above which the prefix is fetched.
    theta: f64,
    weight: Column,
    tbt_ms: Column,
    decoding_tokens: Column,
}

impl Policy for MooncakeAlg1 {
    const NAME: &'static str = "mooncake-alg1";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            forecast: Forecast::configure(params, plan),
            prefix_fetch: PrefixFetch::configure(params, TRANSFER_SHARE),
            subtracts_fetch: params
                .about("Fetched prefixes: `subtracted` from the prediction here, already `in-costs`, or `off` if engines do not fetch.")
                .choice("prefetch", ("subtracted", true), &[("in-costs", false), ("off", false)]),
            theta: params
                .about("Ratio of the longest match to the worker's own above which it is fetched; 1 fetches every longer match.")
                .number("theta", 1.5, 1.0..=1_000_000.0),
            weight: plan.column("worker.weight"),
            tbt_ms: plan.column("cost.tbt-ms"),
            decoding_tokens: plan.column("load.decoding-tokens"),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        if call.request().phase == Phase::Decode {
            return self.decode(call, host);
        }
        let forecast = self.forecast.of(call);
        let cost = |row: &Row<'_>| forecast.queue(row) + self.prefill(&forecast, row);
        Verdict::route_to(call.least(|| host.random(), cost))
    }
}

impl MooncakeAlg1 {
    /// Returns the prefill time of the prompt on the worker, including a fetch.
    fn prefill(&self, forecast: &CallForecast, row: &Row<'_>) -> f64 {
        let own = forecast.matched(row);
        // An empty own match is below any ratio.
        if !self.subtracts_fetch || own > 0.0 && forecast.best() <= self.theta * own {
            forecast.prefill(row)
        } else {
            self.prefix_fetch.prefill(forecast, row)
        }
    }

    /// Chooses the least predicted time between tokens. If it is unknown for some candidate, chooses the
    /// fewest decoding tokens by weight.
    fn decode(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let is_predicted = call.rows().all(|row| row.get(self.tbt_ms) >= 0.0);
        let cost = |row: &Row<'_>| match is_predicted {
            true => row.get(self.tbt_ms),
            false => row.get(self.decoding_tokens) / row.get(self.weight),
        };
        Verdict::route_to(call.least(|| host.random(), cost))
    }
}

export_policy!(MooncakeAlg1);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured(params: &str) -> Configured<MooncakeAlg1> {
        Configured::new(params).unwrap()
    }

    /// Builds a fleet for a prompt of 2,000 tokens, of which `holder`, behind a queue, has 1,500 cached.
    fn fleet(queued: f64) -> Scenario {
        let mut fleet = Scenario::new(["holder", "other"]);
        fleet
            .request("request.prompt-tokens", 2_000.0)
            .holds("holder", 1_500.0)
            .holds("other", 0.0)
            .set("holder", "load.prefill-tokens", queued);
        fleet
    }

    #[test]
    fn an_idle_worker_without_the_prefix_fetches_it() {
        // Fetching takes 0.04 * 1,500 = 60 tokens.
        assert_eq!(fleet(59.0).route(&configured("{}")), Some("holder"));
        assert_eq!(fleet(61.0).route(&configured("{}")), Some("other"));
    }

    #[test]
    fn without_fetching_the_whole_prompt_is_computed() {
        let alone = configured(r#"{"transfer-share": 1}"#);
        assert_eq!(fleet(1_499.0).route(&alone), Some("holder"));
        assert_eq!(fleet(1_501.0).route(&alone), Some("other"));
    }

    #[test]
    fn a_fetch_that_the_prediction_contains_is_not_subtracted_again() {
        let mut fleet = fleet(0.0);
        for (name, prefill_ms) in [("holder", 60.0), ("other", 100.0)] {
            fleet
                .set(name, "cost.token-ms", 0.1)
                .set(name, "cost.prefill-ms", prefill_ms);
        }
        fleet.set("holder", "load.prefill-tokens", 300.0);
        // 30 + 60 ms against 100 ms, or against 100 - 0.96 * 150 < 0.
        assert_eq!(fleet.route(&configured("{}")), Some("other"));
        for prefetch in [r#"{"prefetch": "in-costs"}"#, r#"{"prefetch": "off"}"#] {
            assert_eq!(fleet.route(&configured(prefetch)), Some("holder"));
        }
    }

    #[test]
    fn a_match_within_theta_of_the_best_is_good_enough() {
        let mut fleet = fleet(400.0);
        fleet.holds("other", 1_000.0);
        assert_eq!(
            fleet.route(&configured("{}")),
            Some("holder"),
            "computes 500 more"
        );
        assert_eq!(fleet.route(&configured(r#"{"theta": 1}"#)), Some("other"));
        fleet.holds("other", 999.0);
        assert_eq!(fleet.route(&configured("{}")), Some("other"), "fetches 501");
    }

    #[test]
    fn predicted_times_count_where_they_are_known() {
        let mut fleet = fleet(100.0);
        for (name, token_ms, prefill_ms) in [("holder", 0.1, 60.0), ("other", 0.4, 800.0)] {
            fleet
                .set(name, "cost.token-ms", token_ms)
                .set(name, "cost.prefill-ms", prefill_ms);
        }
        // 10 + 60 against 800 - 0.96 * 1,500 * 0.4 = 224.
        assert_eq!(fleet.route(&configured("{}")), Some("holder"));
        assert_eq!(
            fleet.route(&configured(r#"{"predicted-times": false}"#)),
            Some("other")
        );
    }

    #[test]
    fn a_decode_leg_goes_where_tokens_come_fastest() {
        let mut fleet = fleet(0.0);
        fleet.phase(Phase::Decode);
        fleet
            .set("holder", "load.decoding-tokens", 9_000.0)
            .set("other", "load.decoding-tokens", 8_000.0)
            .set("other", "cost.tbt-ms", 50.0);
        assert_eq!(fleet.route(&configured("{}")), Some("other"));
        fleet.set("holder", "cost.tbt-ms", 40.0);
        assert_eq!(fleet.route(&configured("{}")), Some("holder"));
    }
}
