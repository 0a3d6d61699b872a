//! What a candidate contributes to a cost: the shared price of a prompt, and what a pair adds to it.
//!
//! Knows no pairs.

use crate::call::{Call, Row};
use crate::host::Role;
use crate::params::Params;
use crate::plan::{Plan, RoleColumn};
use crate::price::{Price, Quote};

/// The terms and their parameters.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    price: Price,
    role: RoleColumn,
    /// What the transfer of one token adds to the time to first token, in tokens computed.
    transfer_tokens: f64,
}

/// What candidates of one call cost.
#[derive(Debug, Clone, Copy)]
pub struct Costs<'a> {
    terms: &'a Terms,
    quote: Quote<'a>,
}

/// What one candidate would do for the prompt by itself.
#[derive(Debug, Clone, Copy)]
pub struct Own {
    /// Tokens of the prompt that are not cached there.
    pub uncached: f64,
    /// Priced time to first token, in the unit of [`Quote`].
    pub cost: f64,
}

impl Terms {
    pub(super) fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let transfer_cost = params
            .unit("tokens a token")
            .about("What moving one token's KV cache costs.")
            .number("transfer-cost", 0.04, 0.0..=1_000.0);
        let transfer_overlap = params
            .unit("share")
            .about("Part of the transfer that is hidden behind the prefill.")
            .number("transfer-overlap", 0.0, 0.0..=1.0);
        Self {
            price: Price::configure(params, plan),
            role: plan.roles(),
            transfer_tokens: transfer_cost * (1.0 - transfer_overlap),
        }
    }

    /// Those of a call. Decode workers compute few prompts or none, so that nobody waits for their speeds to be measured.
    pub(super) fn of(&self, call: &Call<'_>) -> Costs<'_> {
        Costs {
            terms: self,
            quote: self.price.quote(call, |row| self.role(row) != Role::Decode),
        }
    }

    /// What a worker does.
    pub(super) fn role(&self, row: &Row<'_>) -> Role {
        row.role(self.role)
    }

    /// Requests past their first token.
    pub(super) fn decoding(&self, row: &Row<'_>) -> f64 {
        self.price.decoding(row)
    }
}

impl Costs<'_> {
    /// The prices of the call.
    #[must_use]
    pub fn quote(&self) -> &Quote<'_> {
        &self.quote
    }

    /// What a candidate would do by itself; nothing is cached there where that is not known.
    #[must_use]
    pub fn own(&self, row: &Row<'_>) -> Own {
        self.own_with(row, self.quote.matched(row).unwrap_or(0.0), 0.0)
    }

    /// What a candidate would do by itself where so many tokens of the prompt are cached, and so many requests wait for it in the
    /// router.
    #[must_use]
    pub fn own_with(&self, row: &Row<'_>, matched: f64, held: f64) -> Own {
        Own {
            uncached: self.quote.uncached(matched),
            cost: self.quote.cost_beside(row, matched, held),
        }
    }

    /// What a decode worker adds when the prompt comes to it computed: prefills of its own in front, and the
    /// requests that it decodes or is about to.
    pub(super) fn crowding(&self, row: &Row<'_>) -> f64 {
        let price = &self.terms.price;
        let requests = price.decode_tokens() * price.requests(row);
        self.quote.work(row, price.queued(row) + requests)
    }

    /// What it adds that so many tokens come over the network.
    pub(super) fn transfer(&self, tokens: f64) -> f64 {
        self.quote.work_anywhere(self.terms.transfer_tokens * tokens)
    }
}
