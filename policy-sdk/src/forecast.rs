//! The predicted time to first token: the wait for the prompts before this one, and this one's own. Policies that are published in
//! times share it.
//!
//! In milliseconds (`cost.token-ms` times `load.prefill-tokens`, and `cost.prefill-ms`) where the router predicts both for every
//! candidate, else in tokens on a worker of weight 1. `Price` is the same sum in tokens, with a price for those who wait.

use crate::call::{Call, Row};
use crate::params::Params;
use crate::plan::{Column, Plan};
use crate::prefix::{Prefix, at_least};
use crate::speed::{Pace, Speed};

/// Where the router lays out the numbers that predictions are made of.
#[derive(Debug, Clone, Copy)]
pub struct Forecast {
    prefix: Prefix,
    prefill_tokens: Column,
    speed: Speed,
    /// Only asked for where predicted times are wanted.
    prefill_ms: Option<Column>,
}

/// The predictions of one call.
#[derive(Debug, Clone, Copy)]
pub struct Outlook {
    prefix: Prefix,
    prefill_tokens: Column,
    prompt: f64,
    best: f64,
    pace: Pace,
    /// Where times are predicted.
    prefill_ms: Option<Column>,
}

/// Engines that fetch a prefix from wherever it is, before they compute the rest of the prompt. The router has no part in it: engines
/// over a shared store do so by themselves.
#[derive(Debug, Clone, Copy)]
pub struct Fetching {
    /// What bringing a token takes of what computing it takes; 1 for engines that do not fetch.
    transfer_share: f64,
}

impl Forecast {
    /// Reads the parameter `predicted-times`, and asks for the numbers.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let is_predicted = params
            .about("Count in predicted milliseconds once the router predicts them for every candidate; else in tokens by weight.")
            .flag("predicted-times", true);
        Self {
            prefix: Prefix::new(plan),
            prefill_tokens: plan.column("load.prefill-tokens"),
            speed: Speed::new(plan, is_predicted),
            prefill_ms: is_predicted.then(|| plan.column("cost.prefill-ms")),
        }
    }

    /// The predictions of a call.
    #[must_use]
    pub fn of(&self, call: &Call<'_>) -> Outlook {
        let all_known = |column: &Column| call.rows().all(|row| row.get(*column) >= 0.0);
        let pace = self.speed.of(call, |_| true);
        let prefill_ms = self
            .prefill_ms
            .filter(|column| pace.is_measured() && all_known(column));
        Outlook {
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

impl Outlook {
    /// Length of the prompt in tokens, estimated from the body where it is not known.
    #[must_use]
    pub fn prompt(&self) -> f64 {
        self.prompt
    }

    /// The longest match of any candidate, in tokens.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.best
    }

    /// Tokens of the prompt that the candidate holds; an unknown match counts as none.
    #[must_use]
    #[inline]
    pub fn matched(&self, row: &Row<'_>) -> f64 {
        self.prefix.matched(row)
    }

    /// The wait for the prompts that are to be computed there before this one.
    #[must_use]
    #[inline]
    pub fn queue(&self, row: &Row<'_>) -> f64 {
        self.pace.work(row, row.get(self.prefill_tokens))
    }

    /// What this prompt takes there by itself, with what is cached there.
    #[must_use]
    #[inline]
    pub fn prefill(&self, row: &Row<'_>) -> f64 {
        match self.prefill_ms {
            Some(column) => row.get(column),
            None => self.pace.work(row, self.prefix.uncached(self.prompt, row)),
        }
    }

    /// What the work of so many prompt tokens takes there.
    #[must_use]
    #[inline]
    pub fn work(&self, row: &Row<'_>, tokens: f64) -> f64 {
        self.pace.work(row, tokens)
    }

    /// What a request costs there besides its prompt, so many tokens. Nothing where times are predicted: they have it in them.
    #[must_use]
    #[inline]
    pub fn overhead(&self, row: &Row<'_>, tokens: f64) -> f64 {
        match self.prefill_ms {
            Some(_) => 0.0,
            None => self.work(row, tokens),
        }
    }
}

impl Fetching {
    /// Reads the parameter `transfer-share`.
    #[must_use]
    pub fn configure(params: &mut Params, default: f64) -> Self {
        Self {
            transfer_share: params
                .unit("share")
                .about("What fetching a cached token from another worker takes of what computing it takes; 1 where engines do not fetch.")
                .number("transfer-share", default, 0.0..=1.0),
        }
    }

    /// What this prompt takes there by itself, if what the best holder has more of it is fetched first.
    #[must_use]
    #[inline]
    pub fn prefill(&self, outlook: &Outlook, row: &Row<'_>) -> f64 {
        let fetched = at_least(0.0, outlook.best - outlook.matched(row));
        let saved = outlook.work(row, fetched * (1.0 - self.transfer_share));
        at_least(0.0, outlook.prefill(row) - saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scenario;
    use crate::{Configured, Host, Policy, Verdict};

    /// Answers its own cost of the first candidate.
    struct First(Forecast, Fetching);

    impl Policy for First {
        const NAME: &'static str = "first";
        const VERSION: &'static str = "1";

        fn configure(params: &mut Params, plan: &mut Plan) -> Self {
            Self(
                Forecast::configure(params, plan),
                Fetching::configure(params, 1.0),
            )
        }

        fn schedule(&self, call: &Call<'_>, _: &impl Host) -> Verdict {
            let outlook = self.0.of(call);
            let score = call.rows().next().map_or(f64::NAN, |row| {
                outlook.queue(&row) + self.1.prefill(&outlook, &row)
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

    /// 1,000 tokens wait at `a`, which has 400 tokens of a prompt of 2,000 and weight 2; `b` has 1,400 of them.
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
    fn it_is_in_tokens_until_every_candidate_is_predicted() {
        let mut fleet = fleet();
        assert_eq!(cost("{}", &mut fleet), (1_000.0 + 1_600.0) / 2.0);
        predict(&mut fleet, "a", 0.5, 900.0);
        assert_eq!(cost("{}", &mut fleet), 1_300.0, "nothing is known of b");
        fleet.set("b", "cost.token-ms", 0.5);
        assert_eq!(cost("{}", &mut fleet), 1_300.0, "only half of it");
        predict(&mut fleet, "b", 0.5, 400.0);
        assert_eq!(cost("{}", &mut fleet), 500.0 + 900.0);
        assert_eq!(cost(r#"{"predicted-times": false}"#, &mut fleet), 1_300.0);
    }

    #[test]
    fn what_is_fetched_costs_its_share() {
        let tenth = r#"{"transfer-share": 0.1}"#;
        let mut fleet = fleet();
        assert_eq!(cost(tenth, &mut fleet), (1_000.0 + 600.0 + 100.0) / 2.0);
        predict(&mut fleet, "a", 0.5, 900.0);
        predict(&mut fleet, "b", 0.5, 400.0);
        assert_eq!(cost(tenth, &mut fleet), 500.0 + 900.0 - 0.9 * 500.0);
    }

    #[test]
    fn the_best_holder_fetches_nothing_and_an_unknown_match_is_none() {
        let mut fleet = fleet();
        fleet.holds("a", 1_500.0);
        assert_eq!(cost(r#"{"transfer-share": 0}"#, &mut fleet), 750.0);
        let mut fleet = Scenario::new(["a"]);
        fleet.request("request.body-bytes", 4_000.0);
        assert_eq!(cost("{}", &mut fleet), 1_000.0);
    }
}
