//! Cost terms of one candidate: the price of the prompt, and the terms that a pair adds.
//!
//! This module does not know pairs.

use crate::call::{Call, Row};
use crate::host::Role;
use crate::lanes::{EachNumber, Lanes, LanesMask, Number, Numbers, RowPair};
use crate::params::Params;
use crate::plan::{Plan, RoleColumn};
use crate::price::{Price, Quote};

/// Configured terms and their parameters.
#[derive(Debug, Clone)]
pub(super) struct CostTerms {
    price: Price,
    role: RoleColumn,
    /// Time that the transfer of one token adds to the time to first token, in computed tokens.
    transfer_tokens: f64,
}

/// Candidates' costs in one call.
#[derive(Debug, Clone, Copy)]
pub struct CallCosts<'a> {
    terms: &'a CostTerms,
    quote: Quote<'a>,
}

/// Cost of the prompt on each candidate alone.
#[derive(Debug, Clone)]
pub struct OwnCosts {
    /// Tokens of the prompt that are not cached on the candidate.
    pub uncached: EachNumber,
    /// Priced time to first token, in the unit of [`Quote`].
    pub cost: EachNumber,
}

impl CostTerms {
    pub(super) fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let transfer_cost = params
            .unit("tokens a token")
            .about("Cost of transferring one token's KV cache.")
            .number("transfer-cost", 0.04, 0.0..=1_000.0);
        let transfer_overlap = params
            .unit("share")
            .about("Share of the transfer that overlaps with the prefill.")
            .number("transfer-overlap", 0.0, 0.0..=1.0);
        Self {
            price: Price::configure(params, plan),
            role: plan.roles(),
            transfer_tokens: transfer_cost * (1.0 - transfer_overlap),
        }
    }

    /// Returns the time that the transfer of one token adds, in computed tokens.
    pub(super) fn transfer_cost(&self) -> f64 {
        self.transfer_tokens
    }

    /// Computes the costs of a call. Decode workers compute few prompts or none, so their missing
    /// measurements do not disable measured speeds.
    pub(super) fn of(&self, call: &Call<'_>) -> CallCosts<'_> {
        CallCosts {
            terms: self,
            quote: self.price.quote(call, |row| self.role(row) != Role::Decode),
        }
    }

    /// Returns which workers serve legs of requests only.
    #[inline(always)]
    pub(super) fn serve_legs(&self, rows: &RowPair<'_>) -> LanesMask {
        let role = rows.number(self.role.0);
        role.equals(Lanes::from(Role::PREFILL)) | role.equals(Lanes::from(Role::DECODE))
    }

    /// Returns the role of a worker.
    pub(super) fn role(&self, row: &Row<'_>) -> Role {
        row.role(self.role)
    }

    /// Returns the candidate's requests past their first token.
    #[inline(always)]
    pub(super) fn decoding<R: Numbers>(&self, row: &R) -> R::Number {
        self.price.decoding(row)
    }
}

impl CallCosts<'_> {
    /// Returns the prices of the call.
    #[must_use]
    pub fn quote(&self) -> &Quote<'_> {
        &self.quote
    }

    /// Returns the candidates' costs as single workers; an unknown match counts as 0.
    #[must_use]
    pub fn own(&self, call: &Call<'_>) -> OwnCosts {
        let matched = call.each(|rows| {
            let matched = self.quote.matched_or_nan(rows);
            Lanes::select(matched.equals(matched), matched, 0.0.into())
        });
        OwnCosts {
            uncached: call.each(|rows| self.quote.uncached(matched.of(rows))),
            cost: call.each(|rows| self.quote.cost(rows, matched.of(rows))),
        }
    }

    /// Returns the cost that a decode worker adds to a pair: its queued prefills, and the requests that it
    /// decodes or is about to decode.
    #[inline(always)]
    pub(super) fn crowding<R: Numbers>(&self, row: &R) -> R::Number {
        let price = &self.terms.price;
        let requests = R::Number::from(price.decode_tokens()) * price.requests(row);
        self.quote.work(row, price.queued(row) + requests)
    }

    /// Returns the cost of transferring so many tokens over the network.
    #[inline(always)]
    pub(super) fn transfer<N: Number>(&self, tokens: N) -> N {
        self.quote
            .work_anywhere(N::from(self.terms.transfer_tokens) * tokens)
    }
}
