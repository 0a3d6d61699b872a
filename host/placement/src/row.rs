//! Row of a layout: one candidate, its load and its prefix match.

use kv_index::WorkerMatch;
use routing::{CostReading, LoadReading, Worker};

/// A column of predicted costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostFeature {
    /// `cost.prefill-ms`
    Prefill,
    /// `cost.token-ms`
    Token,
    /// `cost.transfer-ms`
    Transfer,
    /// `cost.tbt-ms`
    TimeBetweenTokens,
}

/// One candidate of a layout.
#[derive(Debug, Clone, Copy)]
pub struct CandidateRow<'a> {
    /// Index of the pool's member.
    pub member: usize,
    /// The worker.
    pub worker: &'a Worker,
    /// Its numbers.
    pub numbers: RowNumbers<'a>,
}

/// Numbers of a worker and of the request, of which the columns of costs are computed.
#[derive(Debug, Clone, Copy)]
pub struct RowNumbers<'a> {
    /// Load.
    pub load: &'a LoadReading,
    /// Costs by its cost model.
    pub costs: &'a CostReading,
    /// Prefix match, if the cache is known.
    pub found: Option<&'a WorkerMatch>,
    /// Length of the prompt in tokens, estimated where it is not known.
    pub prompt_tokens: u32,
}

impl RowNumbers<'_> {
    /// Returns how many of the prompt's tokens are cached there, as far as is known.
    #[must_use]
    #[inline]
    pub fn cached_tokens(&self) -> u32 {
        self.found
            .map_or(0, |found| found.any_tokens)
            .min(self.prompt_tokens)
    }

    /// Returns the size of the decode batch with this request, and the tokens that it holds.
    #[must_use]
    #[inline]
    pub fn decode_batch(&self) -> (u32, u64) {
        let resident = self.load.prompt_tokens + u64::from(self.prompt_tokens);
        (self.load.decoding + 1, resident)
    }

    /// Returns a cost in milliseconds by the worker's cost model; NaN until it has learned one.
    #[must_use]
    #[inline]
    pub fn learned_cost(&self, feature: CostFeature) -> f64 {
        match feature {
            CostFeature::Prefill => {
                let cached = self.cached_tokens();
                self.costs.prefill_ms(self.prompt_tokens - cached, cached)
            }
            CostFeature::Token => self.costs.token_ms(),
            CostFeature::Transfer => self.costs.transfer_ms(self.prompt_tokens),
            CostFeature::TimeBetweenTokens => {
                let (batch, resident) = self.decode_batch();
                self.costs.tbt_ms(batch, resident)
            }
        }
    }

    /// Returns a number of the prefix match; NaN where the cache is unknown.
    #[inline]
    pub(crate) fn matched(&self, tokens: fn(&WorkerMatch) -> u32) -> f64 {
        self.found.map_or(f64::NAN, |found| tokens(found).into())
    }
}
