//! The lines of a decision log, one JSON object each: `{"KIND": {...}}`. `host/docs/policies/decision-log.md` describes
//! every field.

use std::collections::BTreeMap;

use routing::{RunNumber, Transcript};
use serde::{Deserialize, Serialize};

use crate::fault_line::FaultLine;
use crate::host_call_line::{Bytes, HostCallLine, RoleName};
use crate::number::{Number, Numbers};
use crate::pipeline_line::{PipelineLine, WeighingLine};

/// Schema version. It changes when a field changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;

/// Recorded bytes of a block hash: enough to distinguish a million blocks.
pub const BLOCK_HASH_BYTES: usize = 6;

/// Line of a decision log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// Header: the first line of every file.
    Log(LogLine),
    /// A worker, before the first decision it is a candidate of, and again when it changed.
    Worker(WorkerLine),
    /// A policy, before its first decision in this file.
    Policy(PolicyLine),
    /// One call of a policy or of the fallback.
    Decision(Box<DecisionLine>),
    /// Outcome of a request.
    Outcome(Box<OutcomeLine>),
}

/// Header of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LogLine {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of Conductor.
    pub conductor: String,
    /// Identifier of the process run. `seq` and worker ids restart with each run.
    pub run: String,
    /// The run number as 16 hexadecimal digits. Absent in logs of older versions; it is then 0.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seed: Option<String>,
    /// Microseconds since 1970.
    pub unix_us: u64,
}

impl LogLine {
    /// Returns the run number, or `None` if the text is not a number.
    #[must_use]
    pub fn run_number(&self) -> Option<RunNumber> {
        let Some(seed) = &self.seed else {
            return Some(RunNumber::default());
        };
        u64::from_str_radix(seed, 16).ok().map(RunNumber)
    }
}

/// Description of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct WorkerLine {
    /// Id used by decision lines.
    pub id: u32,
    /// Name in the configuration.
    pub name: String,
    /// Role.
    pub role: RoleName,
    /// Weight.
    pub weight: Number,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// Description of a policy and of the recorded columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyLine {
    /// Id used by decision lines of this file.
    pub id: u32,
    /// Name in the configuration; `least-loaded` is the fallback.
    pub name: String,
    /// SHA-256 of the component. `None` for a native policy.
    pub sha256: Option<String>,
    /// Version in its manifest.
    pub version: Option<String>,
    /// Id of the version, as on `/admin/policies`. `None` for the fallback, and in logs of older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version_id: Option<String>,
    /// Parameters, a JSON object as text.
    pub params: Option<String>,
    /// Request columns of the policy; `?` for one unknown to this router.
    pub request_columns: Vec<String>,
    /// Candidate columns of the policy.
    pub columns: Vec<String>,
    /// Additional recorded request columns.
    pub more_request_columns: Vec<String>,
    /// Additional recorded candidate columns.
    pub more_columns: Vec<String>,
    /// Configuration of a pipeline.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pipeline: Option<PipelineLine>,
}

/// One policy call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DecisionLine {
    /// Request id, truncated to 128 bytes.
    pub request: String,
    /// Sequence number.
    pub seq: u64,
    /// Number of earlier decisions about the request.
    pub attempt: u32,
    /// Placed phase.
    pub phase: PhaseName,
    /// Session key as 16 hexadecimal digits.
    pub session: Option<String>,
    /// Policy clock in microseconds.
    pub now_us: u64,
    /// Microseconds since 1970.
    pub unix_us: u64,
    /// Model, truncated to 256 bytes.
    pub model: String,
    /// Path.
    pub path: String,
    /// The pool's name.
    pub pool: String,
    /// Route, counted from 1.
    pub route: usize,
    /// Id of an earlier policy line.
    pub policy: u32,
    /// Set if the fallback decided because no policy did.
    pub fallback: bool,
    /// Set if one call places both legs: whether a decode worker can serve the request alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pair_or_alone: Option<bool>,
    /// Candidates in row order.
    pub ids: Vec<u32>,
    /// Feature block as the policy received it: the request's columns, then row after row.
    pub numbers: Numbers,
    /// Numbers of the additional columns.
    #[serde(skip_serializing_if = "no_numbers", default)]
    pub more_numbers: Numbers,
    /// Host calls of the policy.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub transcript: Vec<HostCallLine>,
    /// Scores of a pipeline.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub weighing: Option<WeighingLine>,
    /// Set if the transcript is incomplete, so that the call cannot be replayed.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub truncated: bool,
    /// Verdict.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<VerdictLine>,
    /// Fault, if the call failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<FaultLine>,
    /// Reason for rejecting the verdict.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused: Option<String>,
    /// Executed decision. `None` if the fallback was called next.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decided: Option<DecidedLine>,
    /// Duration of the call in microseconds.
    pub took_us: Number,
}

/// [`routing::Phase`]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "they are the contract's")]
pub enum PhaseName {
    Mixed,
    Prefill,
    Decode,
}

/// [`routing::Verdict`]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
#[expect(missing_docs, reason = "the fields are the contract's")]
pub enum VerdictLine {
    /// Route to a candidate or a pair.
    Route {
        row: u32,
        prefill: Option<u32>,
        score: Number,
    },
    /// Hold in the queue.
    Queue {
        order: Number,
        ask_again_ms: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waits_for: Option<WaitsForLine>,
    },
    /// Reject.
    Reject {
        status: u16,
        retry_after_ms: u32,
        reason: String,
    },
    /// Defer to the fallback.
    Pass,
}

/// Candidate for which a held request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsForLine {
    /// Row of the candidate.
    pub row: u32,
    /// Work of the request there, in the policy's unit.
    pub work: u32,
}

/// Executed decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum DecidedLine {
    /// Routed to a worker, and to a prefill worker before it.
    Route {
        /// Id of the worker that answers the client.
        worker: u32,
        /// Id of the prefill worker.
        prefill: Option<u32>,
    },
    /// Held in the queue.
    Queue {
        /// Maximum time until the next call in milliseconds.
        ask_again_ms: u32,
    },
    /// Rejected.
    Reject {
        /// Response status.
        status: u16,
    },
}

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct OutcomeLine {
    /// Request id, as in its decisions.
    pub request: String,
    /// Sequence number, as in its decisions.
    pub seq: u64,
    /// Microseconds since 1970.
    pub unix_us: u64,
    /// Outcome, as in the metric `conductor_requests_total`.
    pub outcome: String,
    /// Response status.
    pub status: Option<u16>,
    /// Name of the worker that answered.
    pub worker: Option<String>,
    /// Name of the prefill worker.
    pub prefill: Option<String>,
    /// Time from the request head to the first byte of a streamed response.
    pub ttft_ms: Option<Number>,
    /// Time from the request head to the end.
    pub duration_ms: Number,
    /// Prompt tokens, if known: counted by the router, else by the worker.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens that the worker cached according to the index.
    pub matched_tokens: Option<u32>,
    /// Cached prompt tokens reported by the worker.
    pub cached_tokens: Option<u64>,
    /// Output tokens reported by the worker.
    pub output_tokens: Option<u64>,
    /// Events of a streamed response without reported output tokens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer_events: Option<u64>,
    /// Block size of `blocks` in tokens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub block_tokens: Option<u32>,
    /// Last [`BLOCK_HASH_BYTES`] bytes of the chained hash of each complete prompt block, big endian.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub blocks: Option<Bytes>,
}

impl DecisionLine {
    /// Returns the host calls as a transcript.
    #[must_use]
    pub fn to_transcript(&self) -> Transcript {
        let calls = self.transcript.iter().map(HostCallLine::recorded_call);
        Transcript::of(calls.collect(), self.truncated)
    }
}

impl From<routing::Phase> for PhaseName {
    fn from(phase: routing::Phase) -> Self {
        match phase {
            routing::Phase::Mixed => Self::Mixed,
            routing::Phase::Prefill => Self::Prefill,
            routing::Phase::Decode => Self::Decode,
        }
    }
}

impl From<PhaseName> for routing::Phase {
    fn from(phase: PhaseName) -> Self {
        match phase {
            PhaseName::Mixed => Self::Mixed,
            PhaseName::Prefill => Self::Prefill,
            PhaseName::Decode => Self::Decode,
        }
    }
}

impl From<&routing::Verdict> for VerdictLine {
    fn from(verdict: &routing::Verdict) -> Self {
        match verdict {
            routing::Verdict::Route(choice) => Self::Route {
                row: choice.row,
                prefill: choice.prefill,
                score: Number(choice.score),
            },
            routing::Verdict::Queue(hold) => Self::Queue {
                order: Number(hold.order),
                ask_again_ms: hold.ask_again_ms,
                waits_for: hold.waits_for.map(|waits| WaitsForLine {
                    row: waits.row,
                    work: waits.work,
                }),
            },
            routing::Verdict::Reject(rejection) => Self::Reject {
                status: rejection.status,
                retry_after_ms: rejection.retry_after_ms,
                reason: rejection.reason.clone(),
            },
            routing::Verdict::Pass => Self::Pass,
        }
    }
}

fn no_numbers(numbers: &Numbers) -> bool {
    numbers.0.is_empty()
}
