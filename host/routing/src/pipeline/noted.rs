//! Record of a pipeline's decision.

use std::sync::Arc;

use crate::fault::PolicyFault;
use crate::origin::Origin;
use crate::transcript::Transcript;

/// One decision of a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighing {
    /// Its scorers, in the order of the specification; none where a strict filter left no candidate.
    pub scored: Vec<Scored>,
    /// The figure of each candidate, row by row; NaN of those that were filtered out.
    pub figures: Vec<f64>,
    /// A bit for each filter that was ignored, the first one's lowest.
    pub ignored: u32,
}

/// A scorer's part.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// Its name.
    pub scorer: Box<str>,
    /// None where every version of it rested.
    pub asked: Option<Asked>,
}

/// A scorer that was called.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The version.
    pub version: Arc<str>,
    /// Origin of that policy.
    pub origin: Option<Arc<Origin>>,
    /// Its scores, row by row; where it failed, it was left out.
    pub answer: Result<Vec<f64>, PolicyFault>,
    /// Its queries.
    pub transcript: Transcript,
}

impl Weighing {
    /// About as many bytes as it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let asked = self.scored.iter().filter_map(|scored| scored.asked.as_ref());
        let asked = asked.map(|asked| {
            let scores = asked.answer.as_deref().map_or(0, size_of_val);
            scores + size_of_val(asked.transcript.notes()) + asked.transcript.bytes()
        });
        size_of::<Self>() + size_of_val(&*self.scored) + size_of_val(&*self.figures) + asked.sum::<usize>()
    }
}
