//! Load of the candidates relative to their weights, for policies without cache affinity and as a fallback
//! for others.
//!
//! ```text
//! load = (requests + 1) / weight            or            (queued tokens + those of this prompt) / weight
//! ```

use crate::call::{Call, LeastCost, Row};
use crate::host::Host;
use crate::params::Params;
use crate::plan::{Column, Plan};
use crate::prompt_length::PromptLength;

/// Configured load metric: its columns, and the prompt length if it counts tokens.
#[derive(Debug, Clone, Copy)]
pub struct WorkerLoad {
    weight: Column,
    amount: Column,
    /// Prompt length, if this request adds its tokens instead of 1.
    prompt: Option<PromptLength>,
}

impl WorkerLoad {
    /// Counts requests in flight, including this one. An idle worker of weight 2 is thus preferred to an idle
    /// one of weight 1.
    #[must_use]
    pub fn requests(plan: &mut Plan) -> Self {
        Self {
            weight: plan.column("worker.weight"),
            amount: plan.column("load.requests"),
            prompt: None,
        }
    }

    /// Counts queued prompt tokens, including those of this request.
    #[must_use]
    pub fn tokens(plan: &mut Plan) -> Self {
        // The router subtracts matched tokens from booked loads only if a column queries the index.
        plan.column("prefix.any-tokens");
        Self {
            weight: plan.column("worker.weight"),
            amount: plan.column("load.prefill-tokens"),
            prompt: Some(PromptLength::new(plan)),
        }
    }

    /// Reads the parameter `load` and builds the chosen metric.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let load: fn(&mut Plan) -> Self = params
            .about("Load metric: requests in flight, or queued prompt tokens.")
            .choice("load", ("requests", Self::requests), &[("tokens", Self::tokens)]);
        load(plan)
    }

    /// Returns the weight of a candidate.
    pub(crate) fn weight(&self, row: &Row<'_>) -> f64 {
        row.get(self.weight)
    }

    /// Returns the load of a candidate without this request, not divided by its weight.
    pub(crate) fn amount(&self, row: &Row<'_>) -> f64 {
        row.get(self.amount)
    }

    /// Computes the load of each candidate including this request.
    pub fn with<'c>(&self, call: &Call<'c>) -> impl Fn(&Row<'c>) -> f64 + use<'c> {
        let Self {
            weight,
            amount,
            prompt,
        } = *self;
        let own = prompt.map_or(1.0, |prompt| prompt.of(call));
        move |row| (row.get(amount) + own) / row.get(weight)
    }

    /// Finds the candidate with the least load; ties are random.
    #[must_use]
    pub fn least(&self, call: &Call<'_>, host: &impl Host) -> Option<LeastCost> {
        call.least(|| host.random(), self.with(call))
    }
}
