//! Observer of a decision: the hooks by which the server keeps its metrics and records, and the simulator its counts.

use routing::{Chosen, CircuitChange, Decision, Offer, Phase, PolicyFault, Transcript, Verdict};

use crate::call::PolicyCall;
use crate::candidates::Candidates;
use crate::outcome::{CallFault, FallbackCause};
use crate::view::PlacementView;

/// The policy of a call.
#[derive(Debug, Clone, Copy)]
pub enum CalledPolicy<'a> {
    /// A version of the configured policy.
    Version(Chosen<'a>),
    /// The fallback.
    Fallback,
}

/// The answer of a policy, not yet checked.
#[derive(Debug)]
pub struct CallAnswer<'a> {
    /// The policy.
    pub policy: CalledPolicy<'a>,
    /// Offer of the call.
    pub offer: Offer<'a>,
    /// Verdict or fault.
    pub answer: &'a Result<Verdict, PolicyFault>,
    /// Queries, where the observer wanted them.
    pub transcript: Transcript,
}

/// Receives the steps of a decision in their order. Durations are measured here: the procedure reads no clock.
///
/// A hook without an implementation does nothing.
pub trait PlacementObserver<V: PlacementView> {
    /// Records the begin of a call. Its candidates are listed next.
    fn call_started(&mut self) {}

    /// Records that the columns are laid out; the policy is called next. Returns whether its queries are to be kept.
    fn policy_called(&mut self, call: &PolicyCall<'_, V>, policy: CalledPolicy<'_>) -> bool {
        let _ = (call, policy);
        false
    }

    /// Records the policy's answer.
    fn policy_answered(&mut self, call: &PolicyCall<'_, V>, candidates: &Candidates, answer: CallAnswer<'_>) {
        let _ = (call, candidates, answer);
    }

    /// Records a valid answer. `change` is its effect on the version's circuit.
    fn call_succeeded(
        &mut self,
        call: &PolicyCall<'_, V>,
        chosen: Chosen<'_>,
        decision: &Decision,
        change: CircuitChange,
    ) {
        let _ = (call, chosen, decision, change);
    }

    /// Records that the policy failed, or its answer is invalid.
    fn call_failed(
        &mut self,
        call: &PolicyCall<'_, V>,
        chosen: Chosen<'_>,
        fault: &CallFault,
        change: CircuitChange,
    ) {
        let _ = (call, chosen, fault, change);
    }

    /// Records that the fallback decides in place of the policy of this phase.
    fn fallback_used(&mut self, phase: Phase, cause: FallbackCause) {
        let _ = (phase, cause);
    }
}
