//! What a candidate contributes to a cost: the shared price of a prompt, and what a pair adds to it.
//!
//! Knows no pairs.

use conductor_policy_sdk::{Call, Params, Plan, Price, Quote, Role, RoleColumn, Row};

/// The terms and their parameters.
#[derive(Debug)]
pub(crate) struct Terms {
    price: Price,
    role: RoleColumn,
    /// What the transfer of one token adds to the time to first token, in tokens computed.
    transfer_tokens: f64,
}

/// The terms of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs<'a> {
    terms: &'a Terms,
    quote: Quote<'a>,
}

/// What one candidate would do for the prompt by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    /// Tokens of the prompt that are not cached there.
    pub(crate) uncached: f64,
    /// Priced time to first token.
    pub(crate) cost: f64,
}

impl Terms {
    pub(crate) fn configure(params: &mut Params, plan: &mut Plan) -> Self {
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
    pub(crate) fn of(&self, call: &Call<'_>) -> Costs<'_> {
        Costs {
            terms: self,
            quote: self.price.quote(call, |row| self.role(row) != Role::Decode),
        }
    }

    /// What a worker does.
    pub(crate) fn role(&self, row: &Row<'_>) -> Role {
        row.role(self.role)
    }

    /// Requests past their first token.
    pub(crate) fn decoding(&self, row: &Row<'_>) -> f64 {
        self.price.decoding(row)
    }
}

impl Costs<'_> {
    /// Length of the prompt, estimated where it is not known.
    pub(crate) fn prompt(&self) -> f64 {
        self.quote.prompt()
    }

    /// What a candidate would do by itself; nothing is cached there where that is not known.
    pub(crate) fn own(&self, row: &Row<'_>) -> Own {
        let matched = self.quote.matched(row).unwrap_or(0.0);
        Own {
            uncached: self.quote.uncached(matched),
            cost: self.quote.cost(row, matched),
        }
    }

    /// What a decode worker adds when the prompt comes to it computed: prefills of its own in front, and the
    /// requests that it decodes or is about to.
    pub(crate) fn crowding(&self, row: &Row<'_>) -> f64 {
        let price = &self.terms.price;
        let requests = price.decode_tokens() * price.requests(row);
        self.quote.work(row, price.queued(row) + requests)
    }

    /// What it adds that so many tokens come over the network.
    pub(crate) fn transfer(&self, tokens: f64) -> f64 {
        self.quote.work_anywhere(self.terms.transfer_tokens * tokens)
    }
}
