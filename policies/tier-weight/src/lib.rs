//! Scorer: cached tokens of the prompt, weighted by tier.
//!
//! `score = device + host * (in host memory only) + disk * (on slower tiers only)`, in tokens that need no
//! computing.

use conductor_policy_sdk::{Call, Column, Host, Params, Plan, Scorer, export_scorer};

/// Scorer: cached tokens of the prompt, weighted by tier.
#[derive(Debug)]
pub struct TierWeight {
    /// Matches are cumulative: each includes the faster tiers.
    on_device: Column,
    on_host: Column,
    on_any: Column,
    /// Worth of a token in host memory and on a slower tier, relative to the device.
    host: f64,
    disk: f64,
}

impl Scorer for TierWeight {
    const NAME: &'static str = "tier-weight";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let host = params
            .about("Worth of a token in host memory, relative to device memory.")
            .number("host", 0.8, 0.0..=1.0);
        let disk = params
            .about("Worth of a token on disk or in a shared store, relative to device memory.")
            .number("disk", 0.5, 0.0..=1.0);
        if disk > host {
            params.refuse("`disk` is above `host`: a slower tier is worth no more than a faster one");
        }
        Self {
            on_device: plan.column("prefix.device-tokens"),
            on_host: plan.column("prefix.host-tokens"),
            on_any: plan.column("prefix.any-tokens"),
            host,
            disk,
        }
    }

    fn score(&self, call: &Call<'_>, _: &impl Host) -> Vec<f64> {
        call.scores(|row| {
            let [device, host, any] = [self.on_device, self.on_host, self.on_any].map(|tier| row.get(tier));
            device + self.host * (host - device) + self.disk * (any - host)
        })
    }
}

export_scorer!(TierWeight);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::ConfiguredScorer;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured(params: &str) -> ConfiguredScorer<TierWeight> {
        ConfiguredScorer::new(params).unwrap()
    }

    /// A worker that holds so many tokens on the device, there and in host memory, and anywhere.
    #[track_caller]
    fn check(params: &str, tokens: [f64; 3], expected: f64) {
        let mut fleet = Scenario::new(["a"]);
        let tiers = ["prefix.device-tokens", "prefix.host-tokens", "prefix.any-tokens"];
        for (tier, tokens) in tiers.into_iter().zip(tokens) {
            fleet.set("a", tier, tokens);
        }
        let scores = fleet.scores(&configured(params));
        assert!((scores[0].1 - expected).abs() < 1e-9, "{scores:?}");
    }

    #[test]
    fn a_token_counts_by_the_fastest_tier_that_it_is_on() {
        check("{}", [1_000.0, 1_000.0, 1_000.0], 1_000.0);
        check("{}", [0.0, 1_000.0, 1_000.0], 800.0);
        check("{}", [0.0, 0.0, 1_000.0], 500.0);
        check("{}", [400.0, 1_000.0, 2_000.0], 400.0 + 480.0 + 500.0);
        check(r#"{"host": 0.5, "disk": 0}"#, [0.0, 1_000.0, 9_000.0], 500.0);
    }

    #[test]
    fn has_no_opinion_on_an_unknown_cache() {
        let mut fleet = Scenario::new(["a", "b"]);
        fleet.holds("b", 64.0);
        let scores = fleet.scores(&configured("{}"));
        assert!(scores[0].1.is_nan() && scores[1] == ("b", 64.0), "{scores:?}");
    }

    #[test]
    fn a_slower_tier_is_not_worth_more() {
        let refused = ConfiguredScorer::<TierWeight>::new(r#"{"host": 0.2, "disk": 0.4}"#).unwrap_err();
        assert!(refused.contains("`disk` is above `host`"), "{refused}");
    }
}
