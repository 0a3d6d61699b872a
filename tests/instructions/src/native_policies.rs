//! Native policies of the cases: wasmtime does not run under valgrind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use routing::{
    Choice, DecisionInput, FeaturePlan, Hold, Policy, PolicyDescription, PolicyFault, Verdict, WaitsFor,
};

/// Policy that takes the first candidate.
#[derive(Debug)]
pub(crate) struct FirstCandidate {
    pub(crate) plan: FeaturePlan,
    /// Number of candidates of the last decision.
    pub(crate) seen: Arc<AtomicUsize>,
}

impl PolicyDescription for FirstCandidate {
    fn name(&self) -> &str {
        "first-candidate"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl Policy for FirstCandidate {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        self.seen.store(input.ids.len(), Ordering::Relaxed);
        Ok(Verdict::Route(Choice {
            row: 0,
            prefill: None,
            score: f64::NAN,
        }))
    }
}

/// Policy that holds a request while the first worker has another.
#[derive(Debug)]
pub(crate) struct HoldsWhileBusy(pub(crate) FeaturePlan);

impl PolicyDescription for HoldsWhileBusy {
    fn name(&self) -> &str {
        "holds-while-busy"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.0
    }
}

impl Policy for HoldsWhileBusy {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        Ok(if input.numbers[0] < 1.0 {
            Verdict::Route(Choice {
                row: 0,
                prefill: None,
                score: f64::NAN,
            })
        } else {
            Verdict::Queue(Hold {
                order: 1.0,
                ask_again_ms: 10_000,
                waits_for: Some(WaitsFor { row: 0, work: 1 }),
            })
        })
    }
}
