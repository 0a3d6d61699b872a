//! Predicted time to first token: the wait for the queued prompts plus the prefill of this one.
//!
//! Policies whose publications are in times share it.
//!
//! The unit is milliseconds (`cost.token-ms` times `load.prefill-tokens`, and `cost.prefill-ms`) if the
//! router predicts both for every candidate. Otherwise it is tokens on a worker of weight 1. `Price` is the
//! same sum in tokens, plus a price for the delay of waiting requests.

use crate::call::{Call, Row};
use crate::params::Params;
use crate::plan::{Column, Plan};
use crate::prefix::{PrefixMatches, at_least};
use crate::speed::{CallSpeed, Speed};

/// Configured forecast: the columns that predictions need.
#[derive(Debug, Clone, Copy)]
pub struct Forecast {
    prefix: PrefixMatches,
    prefill_tokens: Column,
    speed: Speed,
    /// Requested only if predicted times are enabled.
    prefill_ms: Option<Column>,
}

/// Predictions of one call.
#[derive(Debug, Clone, Copy)]
pub struct CallForecast {
    prefix: PrefixMatches,
    prefill_tokens: Column,
    prompt: f64,
    best: f64,
    pace: CallSpeed,
    /// Set if times are predicted.
    prefill_ms: Option<Column>,
}

/// Cost of fetching a prefix from another worker's cache before computing the rest of the prompt.
///
/// Engines over a shared store do this themselves; the router takes no part in it.
#[derive(Debug, Clone, Copy)]
pub struct PrefixFetch {
    /// Cost of transferring a token relative to computing it; 1 for engines that do not fetch.
    transfer_share: f64,
}

impl Forecast {
    /// Reads the parameter `predicted-times` and requests the columns.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let is_predicted = params
            .about(
                "Unit of cost: predicted milliseconds if known for every candidate, else tokens by weight.",
            )
            .flag("predicted-times", true);
        Self {
            prefix: PrefixMatches::new(plan),
            prefill_tokens: plan.column("load.prefill-tokens"),
            speed: Speed::new(plan, is_predicted),
            prefill_ms: is_predicted.then(|| plan.column("cost.prefill-ms")),
        }
    }

    /// Computes the predictions of a call.
    #[must_use]
    pub fn of(&self, call: &Call<'_>) -> CallForecast {
        let all_known = |column: &Column| call.rows().all(|row| row.get(*column) >= 0.0);
        let pace = self.speed.of(call, |_| true);
        let prefill_ms = self
            .prefill_ms
            .filter(|column| pace.is_measured() && all_known(column));
        CallForecast {
            prefix: self.prefix,
            prefill_tokens: self.prefill_tokens,
            prompt: self.prefix.prompt(call),
            best: self.prefix.best(call),
            pace: if prefill_ms.is_some() {
                pace
            } else {
                self.speed.configured()
            },
            prefill_ms,
        }
    }
}

impl CallForecast {
    /// Returns the prompt length in tokens, estimated from the body if it is unknown.
    #[must_use]
    pub fn prompt(&self) -> f64 {
        self.prompt
    }

    /// Returns the longest match of any candidate, in tokens.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.best
    }

    /// Returns the tokens of the prompt that the candidate has cached; an unknown match counts as 0.
    #[must_use]
    #[inline]
    pub fn matched(&self, row: &Row<'_>) -> f64 {
        self.prefix.matched(row)
    }

    /// Returns the wait for the prompts queued on the candidate.
    #[must_use]
    #[inline]
    pub fn queue(&self, row: &Row<'_>) -> f64 {
        self.pace.work(row, row.get(self.prefill_tokens))
    }

    /// Returns the prefill time of this prompt alone, given the candidate's cache.
    #[must_use]
    #[inline]
    pub fn prefill(&self, row: &Row<'_>) -> f64 {
        match self.prefill_ms {
            Some(column) => row.get(column),
            None => self.pace.work(row, self.prefix.uncached(self.prompt, row)),
        }
    }

    /// Returns the time to compute so many prompt tokens on the candidate.
    #[must_use]
    #[inline]
    pub fn work(&self, row: &Row<'_>, tokens: f64) -> f64 {
        self.pace.work(row, tokens)
    }

    /// Returns the fixed cost of a request, given in tokens. It is 0 if times are predicted, because
    /// predictions include it.
    #[must_use]
    #[inline]
    pub fn overhead(&self, row: &Row<'_>, tokens: f64) -> f64 {
        match self.prefill_ms {
            Some(_) => 0.0,
            None => self.work(row, tokens),
        }
    }
}

impl PrefixFetch {
    /// Reads the parameter `transfer-share`.
    #[must_use]
    pub fn configure(params: &mut Params, default: f64) -> Self {
        Self {
            transfer_share: params
                .unit("share")
                .about("Cost of fetching a cached token relative to computing it; 1 if engines do not fetch.")
                .number("transfer-share", default, 0.0..=1.0),
        }
    }

    /// Returns the prefill time if the candidate first fetches the tokens by which the best holder's match is
    /// longer.
    #[must_use]
    #[inline]
    pub fn prefill(&self, forecast: &CallForecast, row: &Row<'_>) -> f64 {
        let fetched = at_least(0.0, forecast.best - forecast.matched(row));
        let saved = forecast.work(row, fetched * (1.0 - self.transfer_share));
        at_least(0.0, forecast.prefill(row) - saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scenario;
    use crate::{Configured, Host, Policy, Verdict};

    /// Test policy whose score is the predicted cost of the first candidate.
    struct First(Forecast, PrefixFetch);

    impl Policy for First {
        const NAME: &'static str = "first";
        const VERSION: &'static str = "1";

        fn configure(params: &mut Params, plan: &mut Plan) -> Self {
            Self(
                Forecast::configure(params, plan),
                PrefixFetch::configure(params, 1.0),
            )
        }

        fn schedule(&self, call: &Call<'_>, _: &impl Host) -> Verdict {
            let forecast = self.0.of(call);
            let score = call.rows().next().map_or(f64::NAN, |row| {
                forecast.queue(&row) + self.1.prefill(&forecast, &row)
            });
            Verdict::Route { row: 0, score }
        }
    }

    fn cost(params: &str, fleet: &mut Scenario) -> f64 {
        match fleet.decide(&Configured::<First>::new(params).unwrap()) {
            Verdict::Route { score, .. } => score,
            other => panic!("{other:?}"),
        }
    }

    /// Builds a fleet for a prompt of 2,000 tokens. `a` has weight 2, 400 cached tokens and 1,000 queued
    /// ones; `b` has 1,400 cached.
    fn fleet() -> Scenario {
        let mut fleet = Scenario::new(["a", "b"]);
        fleet
            .request("request.prompt-tokens", 2_000.0)
            .set("a", "worker.weight", 2.0)
            .set("a", "load.prefill-tokens", 1_000.0)
            .holds("a", 400.0)
            .holds("b", 1_400.0);
        fleet
    }

    fn predict(fleet: &mut Scenario, worker: &str, token_ms: f64, prefill_ms: f64) {
        fleet
            .set(worker, "cost.token-ms", token_ms)
            .set(worker, "cost.prefill-ms", prefill_ms);
    }

    #[test]
    fn costs_are_in_tokens_until_every_candidate_has_a_prediction() {
        let mut fleet = fleet();
        assert_eq!(cost("{}", &mut fleet), (1_000.0 + 1_600.0) / 2.0);
        predict(&mut fleet, "a", 0.5, 900.0);
        assert_eq!(cost("{}", &mut fleet), 1_300.0, "no prediction for b");
        fleet.set("b", "cost.token-ms", 0.5);
        assert_eq!(cost("{}", &mut fleet), 1_300.0, "half of the prediction for b");
        predict(&mut fleet, "b", 0.5, 400.0);
        assert_eq!(cost("{}", &mut fleet), 500.0 + 900.0);
        assert_eq!(cost(r#"{"predicted-times": false}"#, &mut fleet), 1_300.0);
    }

    #[test]
    fn fetched_tokens_cost_their_share() {
        let tenth = r#"{"transfer-share": 0.1}"#;
        let mut fleet = fleet();
        assert_eq!(cost(tenth, &mut fleet), (1_000.0 + 600.0 + 100.0) / 2.0);
        predict(&mut fleet, "a", 0.5, 900.0);
        predict(&mut fleet, "b", 0.5, 400.0);
        assert_eq!(cost(tenth, &mut fleet), 500.0 + 900.0 - 0.9 * 500.0);
    }

    #[test]
    fn the_best_holder_fetches_nothing_and_an_unknown_match_counts_as_zero() {
        let mut fleet = fleet();
        fleet.holds("a", 1_500.0);
        assert_eq!(cost(r#"{"transfer-share": 0}"#, &mut fleet), 750.0);
        let mut fleet = Scenario::new(["a"]);
        fleet.request("request.body-bytes", 4_000.0);
        assert_eq!(cost("{}", &mut fleet), 1_000.0);
    }
}
