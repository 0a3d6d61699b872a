//! One request explained, with names for numbers.

use std::collections::BTreeMap;

use decision_log::{
    DecidedLine, Explained, ExplainedCall, FaultLine, HostCallLine, OutcomeLine, PhaseName, PolicyLine,
    StageSpan, VerdictLine,
};
use routing::Tier;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pipeline;

/// Characters of the hash in a version's id.
const ID_LENGTH: usize = 12;
/// Column with the tokens of the prompt that a worker has.
const MATCHED: &str = "prefix.any-tokens";

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExplainPage {
    pub(super) request: String,
    pub(super) seq: u64,
    pub(super) calls: Vec<CallPage>,
    /// Calls that are not kept.
    pub(super) left_out: usize,
    /// Outcome. `None` while the request goes on.
    pub(super) outcome: Option<Value>,
    /// Stages of the request, relative to its arrival. Older routers send none.
    #[serde(default)]
    pub(super) stages: Vec<StageSpan>,
}

/// One call of a policy, or of the fallback.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CallPage {
    pub(super) policy: String,
    /// Id of its version, or `native`.
    pub(super) version: String,
    /// The version it gives itself.
    pub(super) manifest_version: Option<String>,
    /// Set if the fallback decided, since no policy did.
    pub(super) fallback: bool,
    pub(super) attempt: u32,
    pub(super) phase: PhaseName,
    pub(super) model: String,
    pub(super) path: String,
    pub(super) pool: String,
    pub(super) route: usize,
    pub(super) session: Option<String>,
    pub(super) unix_us: u64,
    pub(super) took_us: Value,
    /// The policy's own figure of merit for its choice.
    pub(super) score: Option<Value>,
    /// Action: `route`, `queue`, `reject`, or `fallback`, which is the next call.
    pub(super) decided: String,
    /// Milliseconds in the queue at most, or the status of a refusal.
    pub(super) detail: Option<u32>,
    pub(super) fault: Option<FaultLine>,
    pub(super) refused: Option<String>,
    pub(super) request_numbers: BTreeMap<String, Value>,
    /// The names of the columns, in the policy's order, then those recorded besides.
    pub(super) columns: Vec<String>,
    pub(super) candidates: Vec<CandidatePage>,
    /// Queries of the call.
    #[serde(rename = "asked")]
    pub(super) queries: Vec<HostCallLine>,
    /// Parts of a pipeline's decision that its columns do not show, such as a scorer that was left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<String>,
}

/// One candidate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CandidatePage {
    pub(crate) worker: String,
    pub(super) role: String,
    /// `answers`, `prefills`, or nothing.
    pub(crate) chosen: Option<String>,
    pub(super) matched_tokens: Option<Value>,
    /// Numbers by name; null is unknown.
    pub(super) numbers: BTreeMap<String, Value>,
}

impl ExplainPage {
    /// Returns the page of an explained request.
    #[must_use]
    pub fn of(explained: &Explained) -> Self {
        let outcome = explained.outcome.as_ref();
        Self {
            request: explained.request.clone(),
            seq: explained.seq,
            calls: explained.calls.iter().map(CallPage::of).collect(),
            left_out: explained.left_out,
            outcome: outcome.and_then(|outcome: &OutcomeLine| serde_json::to_value(outcome).ok()),
            stages: explained.stages.clone(),
        }
    }
}

impl CallPage {
    fn of(call: &ExplainedCall) -> Self {
        let (policy, line) = (&call.policy, &call.decision);
        let request_columns = policy.request_columns.iter().chain(&policy.more_request_columns);
        let of_request = first(&line.numbers.0, policy.request_columns.len());
        let more_of_request = first(&line.more_numbers.0, policy.more_request_columns.len());
        let request_numbers = of_request
            .iter()
            .chain(more_of_request)
            .map(|number| value(*number));
        let (decided, detail) = match line.decided {
            Some(DecidedLine::Route { .. }) => ("route", None),
            Some(DecidedLine::Queue { ask_again_ms }) => ("queue", Some(ask_again_ms)),
            Some(DecidedLine::Reject { status }) => ("reject", Some(status.into())),
            None => ("fallback", None),
        };
        Self {
            policy: policy.name.clone(),
            version: version_id(policy),
            manifest_version: policy.version.clone(),
            fallback: line.fallback,
            attempt: line.attempt,
            phase: line.phase,
            model: line.model.clone(),
            path: line.path.clone(),
            pool: line.pool.clone(),
            route: line.route,
            session: line.session.clone(),
            unix_us: line.unix_us,
            took_us: value(line.took_us.0),
            score: match &line.verdict {
                Some(VerdictLine::Route { score, .. }) => Some(value(score.0)),
                _ => None,
            },
            decided: decided.to_owned(),
            detail,
            fault: line.fault.clone(),
            refused: line.refused.clone(),
            request_numbers: request_columns.cloned().zip(request_numbers).collect(),
            columns: pipeline::columns(line)
                .into_iter()
                .map(|(name, _)| name)
                .chain(policy.columns.iter().chain(&policy.more_columns).cloned())
                .collect(),
            candidates: candidates(call),
            queries: line.transcript.clone(),
            parts: pipeline::parts(policy, line),
        }
    }
}

/// Returns the candidates of a call in row order.
pub(crate) fn candidates(call: &ExplainedCall) -> Vec<CandidatePage> {
    let (policy, line) = (&call.policy, &call.decision);
    let (answers, prefills) = match line.decided {
        Some(DecidedLine::Route { worker, prefill }) => (Some(worker), prefill),
        _ => (None, None),
    };
    let own = |row| {
        row_of(
            &line.numbers.0,
            policy.request_columns.len(),
            policy.columns.len(),
            row,
        )
    };
    let more = |row| {
        let request = policy.more_request_columns.len();
        row_of(&line.more_numbers.0, request, policy.more_columns.len(), row)
    };
    let matched_on_tier = line.transcript.iter().find_map(|line| match line {
        HostCallLine::Matched { tier, tokens } if tier.0 == Tier::Shared => Some(tokens),
        _ => None,
    });
    let weighed = pipeline::columns(line);
    let candidate = |(row, worker): (usize, &decision_log::WorkerLine)| {
        let columns = policy.columns.iter().zip(own(row));
        let columns = columns.chain(policy.more_columns.iter().zip(more(row)));
        let weighed = weighed.iter().map(|(name, numbers)| {
            let number = numbers.get(row).copied().unwrap_or(f64::NAN);
            (name.clone(), value(number))
        });
        let numbers: BTreeMap<String, Value> = columns
            .map(|(name, number)| (name.clone(), value(*number)))
            .chain(weighed)
            .collect();
        let matched = numbers.get(MATCHED).cloned();
        CandidatePage {
            worker: worker.name.clone(),
            role: worker.role.0.as_str().to_owned(),
            chosen: match Some(worker.id) {
                id if id == answers => Some("answers".to_owned()),
                id if id == prefills => Some("prefills".to_owned()),
                _ => None,
            },
            matched_tokens: matched.or_else(|| Some((*matched_on_tier?.get(row)?).into())),
            numbers,
        }
    };
    call.workers.iter().enumerate().map(candidate).collect()
}

/// Returns the id of a recorded version. Older logs have no ids, so it is the beginning of the hash there.
pub(crate) fn version_id(policy: &PolicyLine) -> String {
    if let Some(id) = &policy.version_id {
        return id.clone();
    }
    let id = policy
        .sha256
        .as_deref()
        .map(|sha256| sha256.get(..ID_LENGTH).unwrap_or(sha256));
    let made = if policy.pipeline.is_some() {
        "pipeline"
    } else {
        "native"
    };
    id.unwrap_or(made).to_owned()
}

fn first(numbers: &[f64], most: usize) -> &[f64] {
    &numbers[..most.min(numbers.len())]
}

/// Returns a candidate's numbers, behind those of the request and of the rows before.
fn row_of(numbers: &[f64], request: usize, columns: usize, row: usize) -> &[f64] {
    let start = request + row * columns;
    numbers.get(start..start + columns).unwrap_or_default()
}

/// Returns a number as people and programs read it: whole ones without a point, unknown ones as null.
fn value(number: f64) -> Value {
    if number.is_infinite() {
        return Value::from(if number > 0.0 { "inf" } else { "-inf" });
    }
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return Value::from(number as i64);
    }
    serde_json::Number::from_f64(number).map_or(Value::Null, Value::Number)
}
