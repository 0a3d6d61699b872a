//! Priced time to first token: queued work, the request's own work, and the delay that this work adds for
//! waiting requests.
//!
//! Policies that weigh cache affinity against load share it. The README of the policy `cache-aware` derives
//! each term.
//!
//! ```text
//! cost = (Q + (x + u) * (1 + price * k) + d * decoding) / speed
//! u    = max(prompt - matched, 0)
//! ```
//!
//! The unit is one prompt token computed on a worker of weight 1. With measured speeds it is one millisecond.

use crate::call::{Call, Row};
use crate::lanes::{Number, Numbers};
use crate::params::Params;
use crate::plan::{Column, Plan};
use crate::prefix::TierMatches;
use crate::prompt_length::PromptLength;
use crate::speed::{CallSpeed, Speed};

/// Configured price: the parameters of the formula and the columns that it reads.
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
    /// Fixed cost of a request (x), in tokens.
    request_tokens: f64,
    /// Price of one waiting request's delay, as a share of this request's work.
    backlog_price: f64,
    /// Cost that one decoding request adds to a prefill (d), in tokens.
    decode_tokens: f64,
    tiers: TierMatches,
}

/// Load of one candidate, or of two.
#[derive(Debug, Clone, Copy)]
pub struct QueuedLoad<N> {
    /// Queued prompt tokens.
    pub tokens: N,
    /// Requests, waiting or decoding.
    pub requests: N,
    /// Requests past their first token.
    pub decoding: N,
}

/// Prices of one call.
#[derive(Debug, Clone, Copy)]
pub struct Quote<'a> {
    price: &'a Price,
    prompt: f64,
    pace: CallSpeed,
}

impl Price {
    /// Reads the parameters `measured-speed`, `request-tokens`, `backlog-price`, `decode-tokens`,
    /// `host-worth` and `disk-worth`, and requests the columns.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let is_measured = params
            .about("Use measured token times instead of weights once every worker that computes prompts has one.")
            .flag("measured-speed", false);
        Self {
            length: PromptLength::new(plan),
            speed: Speed::new(plan, is_measured),
            requests: plan.column("load.requests"),
            decoding: plan.column("load.decoding"),
            prefill_tokens: plan.column("load.prefill-tokens"),
            request_tokens: params
                .unit("tokens")
                .about("Fixed cost of a request, besides its prompt.")
                .number("request-tokens", 128.0, 0.0..=1_000_000.0),
            backlog_price: params
                .unit("share")
                .about("Price of delaying one waiting request; 0 ignores waiting requests.")
                .number("backlog-price", 1.0, 0.0..=100.0),
            decode_tokens: params
                .unit("tokens")
                .about("Cost that one decoding request adds to a prefill on the same worker.")
                .number("decode-tokens", 32.0, 0.0..=1_000_000.0),
            tiers: TierMatches::configure(params, plan),
        }
    }

    /// Computes the prices of a call.
    ///
    /// Measured speeds apply if all candidates for which `computes` is true have one. The unknown speeds of
    /// other candidates are derived from their weights.
    #[must_use]
    pub fn quote<'a, 'c>(&'a self, call: &Call<'c>, computes: impl Fn(&Row<'c>) -> bool) -> Quote<'a> {
        Quote {
            price: self,
            prompt: self.length.of(call),
            pace: self.speed.of(call, computes),
        }
    }

    /// Returns the cost that one decoding request adds to a prefill, in tokens.
    #[must_use]
    pub fn decode_tokens(&self) -> f64 {
        self.decode_tokens
    }

    /// Returns the candidate's requests past their first token.
    #[must_use]
    #[inline(always)]
    pub fn decoding<R: Numbers>(&self, row: &R) -> R::Number {
        row.number(self.decoding)
    }

    /// Returns the candidate's requests, waiting or decoding.
    #[must_use]
    #[inline(always)]
    pub fn requests<R: Numbers>(&self, row: &R) -> R::Number {
        row.number(self.requests)
    }

    /// Returns the candidate's queued prompt tokens.
    #[must_use]
    #[inline(always)]
    pub fn queued<R: Numbers>(&self, row: &R) -> R::Number {
        row.number(self.prefill_tokens)
    }
}

impl Quote<'_> {
    /// Returns the prompt length in tokens, estimated from the body if it is unknown.
    #[must_use]
    pub fn prompt(&self) -> f64 {
        self.prompt
    }

    /// Returns the candidate's queued prompt tokens.
    #[must_use]
    #[inline(always)]
    pub fn queued<R: Numbers>(&self, row: &R) -> R::Number {
        self.price.queued(row)
    }

    /// Returns the candidate's requests past their first token.
    #[must_use]
    #[inline(always)]
    pub fn decoding<R: Numbers>(&self, row: &R) -> R::Number {
        self.price.decoding(row)
    }

    /// Returns the cached tokens of the prompt, weighted by tier; none if the match is unknown.
    #[must_use]
    #[inline]
    pub fn matched(&self, row: &Row<'_>) -> Option<f64> {
        self.price.tiers.matched(row)
    }

    /// Returns the cached tokens of the prompt, weighted by tier; NaN if the match is unknown.
    #[must_use]
    #[inline(always)]
    pub fn matched_or_nan<R: Numbers>(&self, row: &R) -> R::Number {
        self.price.tiers.matched_or_nan(row)
    }

    /// Returns the cached tokens of the prompt, weighted by tier, from those on the device, in host memory or faster,
    /// and on any tier; NaN if the first are NaN.
    #[must_use]
    #[inline(always)]
    pub fn weighted_matches<N: Number>(&self, tiers: [N; 3]) -> N {
        self.price.tiers.weighted(tiers)
    }

    /// Returns the tokens of the prompt to compute if so many are matched.
    #[must_use]
    #[inline(always)]
    pub fn uncached<N: Number>(&self, matched: N) -> N {
        (N::from(self.prompt) - matched).at_least(N::from(0.0))
    }

    /// Returns the priced time to first token on the candidate if so many tokens are matched.
    #[must_use]
    #[inline]
    pub fn cost<R: Numbers>(&self, row: &R, matched: R::Number) -> R::Number {
        let load = QueuedLoad {
            tokens: self.queued(row),
            requests: self.price.requests(row),
            decoding: self.decoding(row),
        };
        self.work(row, self.priced_tokens(load, self.uncached(matched), 0.0.into()))
    }

    /// Returns the priced tokens of the request on the candidate if so many are not matched, and `held` more requests
    /// wait for that worker in the router.
    #[must_use]
    #[inline(always)]
    pub fn priced_tokens<N: Number>(&self, load: QueuedLoad<N>, uncached: N, held: N) -> N {
        let price = self.price;
        let waiting = (load.requests - load.decoding).at_least(N::from(0.0)) + held;
        let delays = N::from(1.0) + N::from(price.backlog_price) * waiting;
        let added = (N::from(price.request_tokens) + uncached) * delays;
        load.tokens + added + N::from(price.decode_tokens) * load.decoding
    }

    /// Returns the cost of computing so many tokens on the candidate.
    #[must_use]
    #[inline(always)]
    pub fn work<R: Numbers>(&self, row: &R, tokens: R::Number) -> R::Number {
        self.pace.work(row, tokens)
    }

    /// Returns the cost of so many tokens on a worker of weight 1, for work outside of workers such as a
    /// transfer.
    #[must_use]
    #[inline(always)]
    pub fn work_anywhere<N: Number>(&self, tokens: N) -> N {
        self.pace.work_anywhere(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Request;

    /// Returns the cost of 100 tokens on each of two candidates and on a worker of weight 1. Rows give the
    /// time of a token and the weight. Candidates in `decode` compute no prompts.
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
    fn work_is_in_tokens_by_weight_unless_measured_speeds_are_enabled() {
        assert_eq!(costs("{}", [[0.5, 1.0], [0.5, 2.0]], &[]), [100.0, 50.0, 100.0]);
        assert_eq!(
            costs(MEASURED, [[0.5, 1.0], [2.0, 1.0]], &[]),
            [50.0, 200.0, 125.0]
        );
    }

    #[test]
    fn one_unknown_speed_falls_back_to_weights_for_all() {
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
    fn an_unknown_speed_of_a_decode_worker_is_derived_from_its_weight() {
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
