//! How long things take. Pure arithmetic: knows neither a clock nor the cache.

/// What a step costs, in milliseconds of engine time. A step computes a piece of at most one prompt (the
/// prefill part) and one token for every running sequence (the decode part); their costs add up.
///
/// Shape after the public cost models: prefill is linear in the uncached tokens plus causal attention, which
/// grows with the difference of the squares (Mooncake, FAST'25); a decode step is a constant (the weights are
/// read once) plus a little for each sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostModel {
    /// Once for every prompt, whatever its length: ms.
    pub prefill_fixed_ms: f64,
    /// For every token that is not cached: ms.
    pub prefill_token_ms: f64,
    /// Attention: ms for every unit of `end² - start²`, where a piece covers tokens `start..end`.
    pub prefill_quadratic_ms: f64,
    /// Once for every step that decodes: ms.
    pub decode_step_ms: f64,
    /// For every sequence that decodes in the step: ms.
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
    /// Nothing takes any time: for tests of anything but time.
    pub const INSTANT: Self = Self {
        prefill_fixed_ms: 0.0,
        prefill_token_ms: 0.0,
        prefill_quadratic_ms: 0.0,
        decode_step_ms: 0.0,
        decode_sequence_ms: 0.0,
    };

    /// Milliseconds to compute prompt tokens `start..end`; `first` when it is the prompt's first piece.
    #[must_use]
    pub fn prefill_ms(&self, start: usize, end: usize, first: bool) -> f64 {
        let (from, to) = (start as f64, end as f64);
        let fixed = if first { self.prefill_fixed_ms } else { 0.0 };
        fixed + self.prefill_token_ms * (to - from) + self.prefill_quadratic_ms * (to * to - from * from)
    }

    /// Milliseconds of one decode step of `sequences`; none takes no time.
    #[must_use]
    pub fn decode_ms(&self, sequences: usize) -> f64 {
        if sequences == 0 {
            return 0.0;
        }
        self.decode_step_ms + self.decode_sequence_ms * sequences as f64
    }

    /// Whether every figure is finite and not negative.
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
