//! Decisions of the very same component and parameters, repeated.

use std::sync::Arc;

use decision_log::{FaultLine, VerdictLine};
use policy_runtime::{Divergence, WasmPolicy};
use routing::{DecisionQueries, FaultKind, NoAnswers, PolicyFault, Verdict};
use serde::Serialize;

use super::log::RecordedDecision;
use super::time_outs::TimeOuts;

/// Results of repeated decisions.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RepeatReport {
    pub(super) decisions: u64,
    /// Decisions with the same verdict bit for bit, or the same fault.
    pub(super) identical: u64,
    /// Decisions with another verdict.
    pub(super) different: u64,
    /// Decisions with other queries.
    pub(super) diverged: u64,
    /// Decisions that were not recorded in full, or ran out of time or instances then.
    pub(super) not_repeatable: u64,
    /// The first that came out otherwise.
    pub(super) first_difference: Option<Difference>,
    #[serde(skip)]
    pub(super) nanoseconds: Vec<u64>,
}

/// A decision that came out otherwise.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    pub(super) request: String,
    pub(super) seq: u64,
    pub(super) attempt: u32,
    pub(super) recorded: String,
    pub(super) replayed: String,
}

impl RepeatReport {
    pub(super) fn add(&mut self, policy: &WasmPolicy, recorded: &RecordedDecision, time_outs: &mut TimeOuts) {
        self.decisions += 1;
        if is_of_its_moment(recorded.line.fault.as_ref()) {
            self.not_repeatable += 1;
            return;
        }
        let transcript = recorded.line.to_transcript();
        let queries: Arc<dyn DecisionQueries> = Arc::new(NoAnswers);
        let (replayed, took) = recorded.timed_call(&recorded.line.numbers.0, &queries, |input| {
            policy.decide_replaying(input, &transcript)
        });
        self.nanoseconds.push(took);
        time_outs.count(ran_out_of_time(&replayed));
        let replayed_as = match &replayed {
            Ok(answer) if is_same(recorded, answer) => {
                self.identical += 1;
                return;
            }
            Err(Divergence::Truncated) => {
                self.not_repeatable += 1;
                return;
            }
            Ok(answer) => {
                self.different += 1;
                described(answer)
            }
            Err(divergence) => {
                self.diverged += 1;
                divergence.to_string()
            }
        };
        let line = &recorded.line;
        self.differs(
            recorded,
            format!("{:?}{:?}", line.verdict, line.fault),
            replayed_as,
        );
    }

    /// Keeps a decision that came out otherwise, if it is the first.
    pub(super) fn differs(
        &mut self,
        RecordedDecision { line, .. }: &RecordedDecision,
        recorded: String,
        replayed: String,
    ) {
        self.first_difference.get_or_insert_with(|| Difference {
            request: line.request.clone(),
            seq: line.seq,
            attempt: line.attempt,
            recorded,
            replayed,
        });
    }
}

/// Returns true for faults that depend on the moment: no time, or no instance.
pub(super) fn is_of_its_moment(fault: Option<&FaultLine>) -> bool {
    let of_its_moment = [FaultKind::Deadline, FaultKind::NoInstance].map(FaultKind::as_str);
    fault.is_some_and(|fault| of_its_moment.contains(&&*fault.kind))
}

/// Returns true if the policy was interrupted.
pub(super) fn ran_out_of_time<T>(replayed: &Result<Result<T, PolicyFault>, Divergence>) -> bool {
    matches!(replayed, Ok(Err(fault)) if fault.kind == FaultKind::Deadline)
}

fn is_same(recorded: &RecordedDecision, replayed: &Result<Verdict, PolicyFault>) -> bool {
    match (&recorded.line.verdict, &recorded.line.fault, replayed) {
        (Some(recorded), None, Ok(replayed)) => *recorded == VerdictLine::from(replayed),
        (None, Some(recorded), Err(replayed)) => recorded.kind == replayed.kind.as_str(),
        _ => false,
    }
}

fn described(answer: &Result<Verdict, PolicyFault>) -> String {
    match answer {
        Ok(verdict) => format!("{verdict:?}"),
        Err(fault) => fault.to_string(),
    }
}
