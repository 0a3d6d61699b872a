//! Samples of a cost model, as routers exchange them.

/// Own samples of a line that are kept for other routers. Newer ones replace the oldest.
pub(super) const MOST_KEPT: usize = 8;

/// Sample of one line of a worker's cost model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostSample {
    /// The line.
    pub line: CostLine,
    /// Its numbers, as the line defines them.
    pub numbers: [f32; 3],
}

/// Line of a cost model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostLine {
    /// Thousands of tokens to be computed, thousands of cached ones, milliseconds to the first token.
    Prefill,
    /// Thousands of tokens, nothing, milliseconds to the first token.
    Transfer,
    /// Decoding requests, thousands of resident tokens, milliseconds between tokens.
    Decode,
    /// Matched tokens, tokens of the longest match, cached tokens of the answer.
    Fetched,
}

impl CostLine {
    /// All lines.
    pub const ALL: [Self; 4] = [Self::Prefill, Self::Transfer, Self::Decode, Self::Fetched];
}

/// Newest own samples of a line.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeptSamples {
    samples: [[f32; 3]; MOST_KEPT],
    /// Number of samples since they were taken.
    seen: usize,
}

impl KeptSamples {
    pub(super) fn add(&mut self, numbers: [f64; 3]) {
        self.samples[self.seen % MOST_KEPT] = numbers.map(|number| number as f32);
        self.seen += 1;
    }

    /// Removes the samples and calls `visit` with each.
    pub(super) fn take(&mut self, line: CostLine, visit: &mut impl FnMut(CostSample)) {
        for numbers in self.samples.iter().take(self.seen) {
            visit(CostSample {
                line,
                numbers: *numbers,
            });
        }
        self.seen = 0;
    }
}
