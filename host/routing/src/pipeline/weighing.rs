//! Record of a pipeline's decision.

use std::sync::Arc;

use crate::fault::PolicyFault;
use crate::origin::Origin;
use crate::transcript::Transcript;

/// One decision of a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighing {
    /// Scorers, in the order of the specification. Empty if a strict filter left no candidate.
    pub scored: Vec<Scored>,
    /// The figure of each candidate, row by row; NaN of those that were filtered out.
    pub figures: Vec<f64>,
    /// A bit for each filter that was ignored, the first one's lowest.
    pub ignored: u32,
}

/// A scorer's part.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// Name.
    pub scorer: Box<str>,
    /// Call of the scorer. `None` if the circuits of all its versions were open.
    pub call: Option<ScorerCall>,
}

/// A scorer that was called.
#[derive(Debug, Clone, PartialEq)]
pub struct ScorerCall {
    /// The version.
    pub version: Arc<str>,
    /// Origin of that policy.
    pub origin: Option<Arc<Origin>>,
    /// Scores, row by row. A failed scorer was left out.
    pub answer: Result<Vec<f64>, PolicyFault>,
    /// Host calls.
    pub transcript: Transcript,
}

impl Weighing {
    /// Returns about as many bytes as it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let calls = self.scored.iter().filter_map(|scored| scored.call.as_ref());
        let calls = calls.map(|call| {
            let scores = call.answer.as_deref().map_or(0, size_of_val);
            scores + size_of_val(call.transcript.calls()) + call.transcript.bytes()
        });
        size_of::<Self>() + size_of_val(&*self.scored) + size_of_val(&*self.figures) + calls.sum::<usize>()
    }
}
