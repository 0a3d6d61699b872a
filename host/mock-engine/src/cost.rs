//! Cost model of steps. Pure arithmetic, independent of clock and cache.

/// Cost of a step, in milliseconds of engine time. A step computes a piece of at most one prompt (prefill) and one
/// token per running sequence (decode); their costs add up.
///
/// The shape follows public cost models. Prefill is linear in the uncached tokens plus causal attention, which grows
/// with the difference of the squares (Mooncake, FAST'25). A decode step is a constant (the weights are read once)
/// plus a little for each sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostModel {
    /// Fixed cost per prompt, in ms.
    pub prefill_fixed_ms: f64,
    /// Cost per uncached token, in ms.
    pub prefill_token_ms: f64,
    /// Attention: ms per unit of `end² - start²` for a piece of tokens `start..end`.
    pub prefill_quadratic_ms: f64,
    /// Fixed cost per decode step, in ms.
    pub decode_step_ms: f64,
    /// Cost per decoding sequence and step, in ms.
    pub decode_sequence_ms: f64,
}

impl Default for CostModel {
    /// About an 8B model on one datacentre GPU: 8k tokens of prefill in 0.6 s, 8 ms a token at batch 1.
    fn default() -> Self {
        Self {
            prefill_fixed_ms: 8.0,
            prefill_token_ms: 0.06,
            prefill_quadratic_ms: 1.5e-6,
            decode_step_ms: 8.0,
            decode_sequence_ms: 0.15,
        }
    }
}

impl CostModel {
    /// Zero cost, for tests in which time does not matter.
    pub const INSTANT: Self = Self {
        prefill_fixed_ms: 0.0,
        prefill_token_ms: 0.0,
        prefill_quadratic_ms: 0.0,
        decode_step_ms: 0.0,
        decode_sequence_ms: 0.0,
    };

    /// Returns the milliseconds for prompt tokens `start..end`; `first` for the prompt's first piece.
    #[must_use]
    pub fn prefill_ms(&self, start: usize, end: usize, first: bool) -> f64 {
        let (from, to) = (start as f64, end as f64);
        let fixed = if first { self.prefill_fixed_ms } else { 0.0 };
        fixed + self.prefill_token_ms * (to - from) + self.prefill_quadratic_ms * (to * to - from * from)
    }

    /// Returns the milliseconds of one decode step of `sequences`; 0 without any.
    #[must_use]
    pub fn decode_ms(&self, sequences: usize) -> f64 {
        if sequences == 0 {
            return 0.0;
        }
        self.decode_step_ms + self.decode_sequence_ms * sequences as f64
    }

    /// Returns `true` if every figure is finite and not negative.
    pub(crate) fn is_sane(&self) -> bool {
        [
            self.prefill_fixed_ms,
            self.prefill_token_ms,
            self.prefill_quadratic_ms,
            self.decode_step_ms,
            self.decode_sequence_ms,
        ]
        .iter()
        .all(|figure| figure.is_finite() && *figure >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: CostModel = CostModel {
        prefill_fixed_ms: 10.0,
        prefill_token_ms: 1.0,
        prefill_quadratic_ms: 0.01,
        decode_step_ms: 5.0,
        decode_sequence_ms: 0.5,
    };

    #[test]
    fn a_prompt_costs_the_same_whole_or_in_pieces() {
        let whole = COST.prefill_ms(16, 100, true);
        let pieces = COST.prefill_ms(16, 50, true) + COST.prefill_ms(50, 100, false);
        assert!((whole - pieces).abs() < 1e-9);
        assert!((whole - (10.0 + 84.0 + 0.01 * (10_000.0 - 256.0))).abs() < 1e-9);
    }

    #[test]
    fn a_decode_step_grows_with_the_batch() {
        assert_eq!(COST.decode_ms(0), 0.0);
        assert_eq!(COST.decode_ms(1), 5.5);
        assert_eq!(COST.decode_ms(8), 9.0);
    }
}
