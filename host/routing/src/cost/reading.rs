//! Predictions of a cost model at one moment.

/// Slopes are per so many tokens, which keeps the numbers near each other.
pub(super) const UNIT: f64 = 1000.0;

/// Coefficients of a worker's cost lines; NaN while unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostReading {
    pub(super) prefill: [f64; 3],
    pub(super) transfer: [f64; 2],
    pub(super) tbt: [f64; 3],
    pub(super) fetched_share: f64,
}

impl CostReading {
    /// Returns the milliseconds to compute a prompt where nothing waits before it; NaN while unknown.
    #[must_use]
    #[inline]
    pub fn prefill_ms(&self, uncached: u32, cached: u32) -> f64 {
        self.first_token_ms(uncached, cached, 0)
    }

    /// Returns the milliseconds from the dispatch to the first token, behind so many tokens of others; NaN while
    /// unknown.
    #[must_use]
    #[inline]
    pub(crate) fn first_token_ms(&self, uncached: u32, cached: u32, ahead: u64) -> f64 {
        let work = thousands(u64::from(uncached).saturating_add(ahead));
        predict(&self.prefill, &[1.0, work, thousands(cached.into())])
    }

    /// Returns the milliseconds to compute one prompt token; NaN while unknown.
    #[must_use]
    #[inline]
    pub fn token_ms(&self) -> f64 {
        predict(&self.prefill, &[0.0, 1.0 / UNIT, 0.0])
    }

    /// Returns the milliseconds to the first token besides those of the prompt's tokens; NaN while unknown.
    #[must_use]
    #[inline]
    pub fn request_ms(&self) -> f64 {
        predict(&self.prefill, &[1.0, 0.0, 0.0])
    }

    /// Returns the share of the tokens that another worker held and this one lacked, and that it did not compute; NaN
    /// while unknown.
    #[must_use]
    #[inline]
    pub fn fetched_share(&self) -> f64 {
        self.fetched_share
    }

    /// Returns the milliseconds to take over a prompt computed elsewhere, to the first token; NaN while unknown.
    #[must_use]
    #[inline]
    pub fn transfer_ms(&self, prompt: u32) -> f64 {
        predict(&self.transfer, &[1.0, thousands(prompt.into())])
    }

    /// Returns the milliseconds between tokens with so many requests decoding that hold so many prompt tokens; NaN
    /// while unknown.
    #[must_use]
    #[inline]
    pub fn tbt_ms(&self, decoding: u32, resident: u64) -> f64 {
        predict(&self.tbt, &[1.0, decoding.into(), thousands(resident)])
    }
}

/// Returns the value of a line at a point, never below 0.
#[inline]
pub(super) fn predict<const N: usize>(line: &[f64; N], point: &[f64; N]) -> f64 {
    let sum: f64 = line
        .iter()
        .zip(point)
        .map(|(coefficient, x)| coefficient * x)
        .sum();
    if sum < 0.0 { 0.0 } else { sum }
}

#[inline]
pub(super) fn thousands(tokens: u64) -> f64 {
    tokens as f64 / UNIT
}
