//! How much the candidates have to do, for their weight: what policies go by that know of no caches, and others where they have nothing
//! better to go by.
//!
//! ```text
//! load = (requests + 1) / weight            or            (queued tokens + those of this prompt) / weight
//! ```

use crate::call::{Call, Least, Row};
use crate::host::Host;
use crate::params::Params;
use crate::plan::{Column, Plan};
use crate::prompt_length::PromptLength;

/// What load is, and where the router lays out the numbers it is made of.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    weight: Column,
    amount: Column,
    /// What this request adds, where that is not 1.
    prompt: Option<PromptLength>,
}

impl Load {
    /// Requests that this router sent and that are not answered in full; the request itself is one more, so that an idle worker of
    /// weight 2 comes before an idle one of weight 1.
    #[must_use]
    pub fn requests(plan: &mut Plan) -> Self {
        Self {
            weight: plan.column("worker.weight"),
            amount: plan.column("load.requests"),
            prompt: None,
        }
    }

    /// Prompt tokens that wait there to be computed, and those of this request.
    #[must_use]
    pub fn tokens(plan: &mut Plan) -> Self {
        // Requests are booked without what was matched only if a column has the index asked.
        plan.column("prefix.any-tokens");
        Self {
            weight: plan.column("worker.weight"),
            amount: plan.column("load.prefill-tokens"),
            prompt: Some(PromptLength::new(plan)),
        }
    }

    /// Either, by the parameter `load`.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let load: fn(&mut Plan) -> Self = params
            .about("What is compared: requests in flight, or prompt tokens that wait to be computed.")
            .choice("load", ("requests", Self::requests), &[("tokens", Self::tokens)]);
        load(plan)
    }

    /// The weight of a candidate.
    pub(crate) fn weight(&self, row: &Row<'_>) -> f64 {
        row.get(self.weight)
    }

    /// What a candidate has to do without this request.
    pub(crate) fn amount(&self, row: &Row<'_>) -> f64 {
        row.get(self.amount)
    }

    /// The load of each candidate, were the request sent there.
    pub fn with<'c>(&self, call: &Call<'c>) -> impl Fn(&Row<'c>) -> f64 + use<'c> {
        let Self {
            weight,
            amount,
            prompt,
        } = *self;
        let own = prompt.map_or(1.0, |prompt| prompt.of(call));
        move |row| (row.get(amount) + own) / row.get(weight)
    }

    /// The candidate with the least load, ties at random.
    #[must_use]
    pub fn least(&self, call: &Call<'_>, host: &impl Host) -> Option<Least> {
        call.least(|| host.random(), self.with(call))
    }
}
