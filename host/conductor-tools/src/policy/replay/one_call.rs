//! One recorded call, decided again by another policy.

use decision_log::{DecidedLine, Explained, ExplainedCall};
use placement::CallFault;
use policy_runtime::WasmPolicy;
use routing::{Decision, PolicyDescription, RunNumber};
use serde::Serialize;
use thiserror::Error;

use super::log::RecordedDecision;
use super::replay_with::{AnsweredCall, ComparedPolicy};
use crate::explain::{CandidatePage, candidates, version_id};

/// Characters of a version's id, as on the page of a request.
const ID_LENGTH: usize = 12;

/// Result of a replay, beside the recorded decision.
#[derive(Debug, Serialize)]
pub struct ReplayedCall {
    /// Policy that decided again.
    policy: String,
    /// The beginning of its SHA-256.
    version: String,
    manifest_version: String,
    /// Number of the call in the request's page, from 0.
    call: usize,
    #[serde(flatten)]
    decision: ReplayedDecision,
    /// True if it chose the same worker or pair, or did the same without one.
    agrees: bool,
    /// Candidates with the recorded numbers and its own choice.
    candidates: Vec<CandidatePage>,
    original: OriginalCall,
}

/// Verdict with the names of the workers.
#[derive(Debug, PartialEq, Serialize)]
struct ReplayedDecision {
    /// `route`, `queue`, `reject`, `pass`, `invalid` or `fault`. The fallback would decide after the last three.
    verdict: &'static str,
    /// Reason of a refusal, of an invalid verdict or of a fault.
    detail: Option<String>,
    worker: Option<String>,
    prefill_worker: Option<String>,
    /// The policy's own figure of merit for its choice.
    score: Option<f64>,
}

/// The recorded call.
#[derive(Debug, Serialize)]
struct OriginalCall {
    policy: String,
    version: String,
    fallback: bool,
    verdict: &'static str,
    worker: Option<String>,
    prefill_worker: Option<String>,
}

/// Reason why a call cannot be decided again.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReplayError {
    /// The request has no such call.
    #[error("find call {call}: the record of the request has {count}")]
    NoCall {
        /// Number of the call, from 0.
        call: usize,
        /// Number of the calls.
        count: usize,
    },
    /// The record misses inputs of the policy.
    #[error("decide the call again: {0}; `columns = \"all\"` of [record] keeps the inputs of every policy")]
    NotComparable(String),
}

/// Lets a policy decide a recorded call again, with the recorded numbers and answers. Without a number, it is the last
/// call in which a policy placed the request. It changes the policy's memory: use one apart.
///
/// # Errors
/// [`ReplayError`].
pub fn replay_call(
    policy: &WasmPolicy,
    explained: &Explained,
    call: Option<usize>,
    run: RunNumber,
) -> Result<ReplayedCall, ReplayError> {
    let at = call.unwrap_or_else(|| placing_call(&explained.calls));
    let missing = ReplayError::NoCall {
        call: at,
        count: explained.calls.len(),
    };
    let call = explained.calls.get(at).ok_or(missing)?;
    let recorded = RecordedDecision::of(call, run)
        .ok_or_else(|| ReplayError::NotComparable("its record is not complete".to_owned()))?;
    let answered = ComparedPolicy::new(policy).answer(&recorded);
    let answered = answered.and_then(AnsweredCall::if_recorded);
    let answered = answered.map_err(ReplayError::NotComparable)?;
    let name = |row: usize| call.workers.get(row).map(|worker| worker.name.clone());
    let decision = ReplayedDecision::of(&answered, name);
    let original = OriginalCall::of(call);
    let manifest = policy.manifest();
    let sha256 = policy.sha256();
    Ok(ReplayedCall {
        policy: policy.name().to_owned(),
        version: sha256.get(..ID_LENGTH).unwrap_or(sha256).to_owned(),
        manifest_version: manifest.version.clone(),
        call: at,
        agrees: (decision.verdict, &decision.worker, &decision.prefill_worker)
            == (original.verdict, &original.worker, &original.prefill_worker),
        candidates: chosen(candidates(call), &decision),
        decision,
        original,
    })
}

/// Returns the last call in which a policy placed the request, else the last of a policy, else the last.
fn placing_call(calls: &[ExplainedCall]) -> usize {
    let of_policy = |call: &ExplainedCall| !call.decision.fallback;
    let places = |call: &ExplainedCall| {
        of_policy(call) && matches!(call.decision.decided, Some(DecidedLine::Route { .. }))
    };
    let last = calls.iter().rposition(places);
    last.or_else(|| calls.iter().rposition(of_policy))
        .unwrap_or_else(|| calls.len().saturating_sub(1))
}

/// Marks the choice among the candidates.
fn chosen(mut candidates: Vec<CandidatePage>, decision: &ReplayedDecision) -> Vec<CandidatePage> {
    for candidate in &mut candidates {
        let is = |chosen: &Option<String>| chosen.as_ref() == Some(&candidate.worker);
        let part = match (is(&decision.worker), is(&decision.prefill_worker)) {
            (true, _) => Some("answers"),
            (false, true) => Some("prefills"),
            (false, false) => None,
        };
        candidate.chosen = part.map(str::to_owned);
    }
    candidates
}

impl ReplayedDecision {
    fn of(answered: &AnsweredCall, name: impl Fn(usize) -> Option<String>) -> Self {
        let bare = |verdict, detail| Self {
            verdict,
            detail,
            worker: None,
            prefill_worker: None,
            score: None,
        };
        match &answered.decision {
            Ok(Decision::Route(route)) => Self {
                verdict: "route",
                detail: None,
                worker: name(route.row()),
                prefill_worker: route.prefill().and_then(name),
                score: answered.score,
            },
            Ok(Decision::Queue(_)) => bare("queue", None),
            Ok(Decision::Reject(rejection)) => bare("reject", Some(rejection.reason.clone())),
            Ok(Decision::Pass) => bare("pass", None),
            Err(CallFault::Verdict(invalid)) => bare("invalid", Some(invalid.to_string())),
            Err(CallFault::Policy(fault)) => {
                let detail = format!("{}: {}", fault.kind.as_str(), fault.detail);
                bare("fault", Some(detail))
            }
        }
    }
}

impl OriginalCall {
    fn of(call: &ExplainedCall) -> Self {
        let line = &call.decision;
        let name = |id: u32| {
            let mut workers = call.workers.iter();
            workers
                .find(|worker| worker.id == id)
                .map(|worker| worker.name.clone())
        };
        let (verdict, worker, prefill_worker) = match line.decided {
            Some(DecidedLine::Route { worker, prefill }) => ("route", name(worker), prefill.and_then(name)),
            Some(DecidedLine::Queue { .. }) => ("queue", None, None),
            Some(DecidedLine::Reject { .. }) => ("reject", None, None),
            None if line.fault.is_some() => ("fault", None, None),
            None if line.refused.is_some() => ("invalid", None, None),
            None => ("pass", None, None),
        };
        Self {
            policy: call.policy.name.clone(),
            version: version_id(&call.policy),
            fallback: line.fallback,
            verdict,
            worker,
            prefill_worker,
        }
    }
}
