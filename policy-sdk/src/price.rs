//! The priced time to first token: what is queued at a worker, what a request adds, and what that addition costs those who wait
//! behind it. Policies that weigh caches against queues share it; the README of the policy `cache-aware` derives each term.
//!
//! ```text
//! cost = (Q + (x + u) * (1 + price * k) + d * decoding) / speed
//! u    = max(prompt - matched, 0)
//! ```
//!
//! Counted in prompt tokens: the work of computing one of them on a worker of weight 1. Where speeds are measured, in milliseconds.

use crate::call::{Call, Row};
use crate::params::Params;
use crate::plan::{Column, Plan};
use crate::prefix::{Tiers, at_least};
use crate::prompt_length::PromptLength;
use crate::speed::{Pace, Speed};

/// The formula's parameters, and where the router lays out the numbers that it reads.
///
/// ```
/// use conductor_policy_sdk::{Call, Host, Params, Plan, Policy, Price, Verdict};
///
/// struct Cheapest(Price);
///
/// impl Policy for Cheapest {
///     const NAME: &'static str = "cheapest";
///     const VERSION: &'static str = "0.1.0";
///
///     fn configure(params: &mut Params, plan: &mut Plan) -> Self {
///         Self(Price::configure(params, plan))
///     }
///
///     fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
///         let quote = self.0.quote(call, |_| true);
///         let cost = |row: &_| quote.cost(row, quote.matched(row).unwrap_or(0.0));
///         Verdict::route_to(call.least(|| host.random(), cost))
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Price {
    length: PromptLength,
    speed: Speed,
    requests: Column,
    decoding: Column,
    prefill_tokens: Column,
    /// x: what a request costs besides its prompt, in tokens.
    request_tokens: f64,
    /// What one waiting request behind this one is worth, as a share of this one's work.
    backlog_price: f64,
    /// d: what one decoding request costs a prefill, in tokens.
    decode_tokens: f64,
    tiers: Tiers,
}

/// The prices of one call.
#[derive(Debug, Clone, Copy)]
pub struct Quote<'a> {
    price: &'a Price,
    prompt: f64,
    pace: Pace,
}

impl Price {
    /// Reads the parameters `measured-speed`, `request-tokens`, `backlog-price`, `decode-tokens`, `host-worth` and
    /// `disk-worth`, and asks for the numbers.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let is_measured = params
            .about("Go by the measured time of a prompt token, not by weights, once that of every worker that computes prompts is known.")
            .flag("measured-speed", false);
        Self {
            length: PromptLength::new(plan),
            speed: Speed::new(plan, is_measured),
            requests: plan.column("load.requests"),
            decoding: plan.column("load.decoding"),
            prefill_tokens: plan.column("load.prefill-tokens"),
            request_tokens: params
                .unit("tokens")
                .about("What a request costs besides its prompt.")
                .number("request-tokens", 128.0, 0.0..=1_000_000.0),
            backlog_price: params
                .unit("share")
                .about("Price of one waiting request; 0 is greedy.")
                .number("backlog-price", 1.0, 0.0..=100.0),
            decode_tokens: params
                .unit("tokens")
                .about("What one decoding request costs a prefill beside it.")
                .number("decode-tokens", 32.0, 0.0..=1_000_000.0),
            tiers: Tiers::configure(params, plan),
        }
    }

    /// The prices of a call. Measured speeds are gone by where all candidates that `computes` prompts have one; what another one
    /// takes is then told from its weight.
    #[must_use]
    pub fn quote<'a, 'c>(&'a self, call: &Call<'c>, computes: impl Fn(&Row<'c>) -> bool) -> Quote<'a> {
        Quote {
            price: self,
            prompt: self.length.of(call),
            pace: self.speed.of(call, computes),
        }
    }

    /// What one decoding request costs a prefill beside it, in tokens.
    #[must_use]
    pub fn decode_tokens(&self) -> f64 {
        self.decode_tokens
    }

    /// Requests there past their first token.
    #[must_use]
    pub fn decoding(&self, row: &Row<'_>) -> f64 {
        row.get(self.decoding)
    }

    /// Requests there, waiting or decoding.
    #[must_use]
    pub fn requests(&self, row: &Row<'_>) -> f64 {
        row.get(self.requests)
    }

    /// Prompt tokens to be computed there before this request's.
    #[must_use]
    pub fn queued(&self, row: &Row<'_>) -> f64 {
        row.get(self.prefill_tokens)
    }
}

impl Quote<'_> {
    /// Length of the prompt in tokens, estimated from the body where it is not known.
    #[must_use]
    pub fn prompt(&self) -> f64 {
        self.prompt
    }

    /// Prompt tokens to be computed there before this request's.
    #[must_use]
    pub fn queued(&self, row: &Row<'_>) -> f64 {
        self.price.queued(row)
    }

    /// Requests there past their first token.
    #[must_use]
    pub fn decoding(&self, row: &Row<'_>) -> f64 {
        self.price.decoding(row)
    }

    /// Tokens of the prompt that need not be computed there, each tier's at its worth; none where that is not known.
    #[must_use]
    #[inline]
    pub fn matched(&self, row: &Row<'_>) -> Option<f64> {
        self.price.tiers.matched(row)
    }

    /// Tokens of the prompt that are to be computed where so many are matched.
    #[must_use]
    #[inline]
    pub fn uncached(&self, matched: f64) -> f64 {
        at_least(0.0, self.prompt - matched)
    }

    /// The priced time to first token there, where so many tokens are matched.
    #[must_use]
    #[inline]
    pub fn cost(&self, row: &Row<'_>, matched: f64) -> f64 {
        self.cost_beside(row, matched, 0.0)
    }

    /// The same where so many requests wait for that worker in the router besides.
    #[must_use]
    #[inline]
    pub fn cost_beside(&self, row: &Row<'_>, matched: f64, held: f64) -> f64 {
        let price = self.price;
        let decoding = price.decoding(row);
        let waiting = at_least(0.0, price.requests(row) - decoding) + held;
        let added = (price.request_tokens + self.uncached(matched)) * (1.0 + price.backlog_price * waiting);
        self.work(row, price.queued(row) + added + price.decode_tokens * decoding)
    }

    /// What the work of so many tokens costs there.
    #[must_use]
    #[inline]
    pub fn work(&self, row: &Row<'_>, tokens: f64) -> f64 {
        self.pace.work(row, tokens)
    }

    /// What it costs on a worker of weight 1: of work that is no worker's, such as a transfer.
    #[must_use]
    pub fn work_anywhere(&self, tokens: f64) -> f64 {
        self.pace.work_anywhere(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Request;

    /// Of two candidates with these times of a token and weights, what 100 tokens of work cost on each and anywhere; all of them but
    /// those in `decode` compute prompts.
    fn costs(params: &str, rows: [[f64; 2]; 2], decode: &[u32]) -> [f64; 3] {
        let mut params = Params::parse(params).unwrap();
        let mut plan = Plan::default();
        let price = Price::configure(&mut params, &mut plan);
        let numbers = rows.iter().flat_map(|[token_ms, weight]| {
            plan.candidate_features().iter().map(|name| match &**name {
                "cost.token-ms" => *token_ms,
                "worker.weight" => *weight,
                _ => 0.0,
            })
        });
        let numbers: Vec<f64> = [f64::NAN, 400.0].into_iter().chain(numbers).collect();
        let call = Call::new(Request::default(), &[0, 1], &numbers, &plan).unwrap();
        let quote = price.quote(&call, |row| !decode.contains(&row.id()));
        assert_eq!(quote.prompt(), 100.0, "estimated");
        let mut each = call.rows().map(|row| quote.work(&row, 100.0));
        [
            each.next().unwrap(),
            each.next().unwrap(),
            quote.work_anywhere(100.0),
        ]
    }

    const MEASURED: &str = r#"{"measured-speed":true}"#;

    #[test]
    fn work_is_counted_in_tokens_by_weight_unless_speeds_are_to_be_measured() {
        assert_eq!(costs("{}", [[0.5, 1.0], [0.5, 2.0]], &[]), [100.0, 50.0, 100.0]);
        assert_eq!(
            costs(MEASURED, [[0.5, 1.0], [2.0, 1.0]], &[]),
            [50.0, 200.0, 125.0]
        );
    }

    #[test]
    fn one_unknown_speed_makes_all_go_by_weight() {
        assert_eq!(
            costs(MEASURED, [[0.5, 1.0], [f64::NAN, 2.0]], &[]),
            [100.0, 50.0, 100.0]
        );
        assert_eq!(
            costs(MEASURED, [[0.5, 1.0], [0.0, 2.0]], &[]),
            [100.0, 50.0, 100.0]
        );
    }

    #[test]
    fn the_unknown_speed_of_one_that_computes_no_prompts_is_told_from_its_weight() {
        assert_eq!(
            costs(MEASURED, [[0.5, 2.0], [f64::NAN, 4.0]], &[1]),
            [50.0, 25.0, 100.0]
        );
        assert_eq!(
            costs(MEASURED, [[f64::NAN, 2.0], [f64::NAN, 4.0]], &[0, 1]),
            [50.0, 25.0, 100.0]
        );
    }
}
