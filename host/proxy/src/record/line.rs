//! The lines of a decision log, one JSON object each: `{"KIND": {...}}`. `host/docs/policies/decision-log.md` describes every field.

use std::collections::BTreeMap;

use routing::{RunNumber, Transcript};
use serde::{Deserialize, Serialize};

use super::call_note::cut;
use super::note_line::{Bytes, NoteLine, RoleName};
use super::number::{Number, Numbers};
use super::pipeline_line::{PipelineLine, WeighingLine};

/// The version of what is written. It changes where a field changes its meaning, not where one is added.
pub const SCHEMA: u32 = 1;

/// Of a block's hash so many bytes are written: enough to tell a million blocks apart.
pub const BLOCK_HASH_BYTES: usize = 6;

/// Most bytes of a policy's message.
const LONGEST_DETAIL: usize = 512;

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The first of every file.
    Log(LogLine),
    /// A worker, before the first decision it is a candidate of, and again when it changed.
    Worker(WorkerLine),
    /// What decides, before the first decision it made in this file.
    Policy(PolicyLine),
    /// One call of a policy, or of the fallback.
    Decision(Box<DecisionLine>),
    /// How a request ended.
    Outcome(Box<OutcomeLine>),
}

/// What wrote a file, and when it began to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LogLine {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of Conductor.
    pub conductor: String,
    /// Tells runs of the router apart: `seq` and worker ids begin anew in each.
    pub run: String,
    /// The run number as 16 hexadecimal digits. Logs of older versions have none, and theirs is 0.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seed: Option<String>,
    /// Microseconds since 1970.
    pub unix_us: u64,
}

impl LogLine {
    /// Returns the number that seeds the lots of this run; none where the text is not one.
    #[must_use]
    pub fn run_number(&self) -> Option<RunNumber> {
        let Some(seed) = &self.seed else {
            return Some(RunNumber::default());
        };
        u64::from_str_radix(seed, 16).ok().map(RunNumber)
    }
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct WorkerLine {
    /// As decisions name it.
    pub id: u32,
    /// In the configuration.
    pub name: String,
    /// What it does.
    pub role: RoleName,
    /// Its weight.
    pub weight: Number,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// A policy with the columns that are recorded of its decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyLine {
    /// As decisions of this file name it.
    pub id: u32,
    /// In the configuration; `least-loaded` is the fallback.
    pub name: String,
    /// SHA-256 of the component; none where it is part of the router.
    pub sha256: Option<String>,
    /// The version it gives itself.
    pub version: Option<String>,
    /// Its parameters, a JSON object as text.
    pub params: Option<String>,
    /// The request's numbers it asked for, `?` for one that this router does not know.
    pub request_columns: Vec<String>,
    /// The columns it asked for.
    pub columns: Vec<String>,
    /// What is recorded besides, of the request.
    pub more_request_columns: Vec<String>,
    /// And of each candidate.
    pub more_columns: Vec<String>,
    /// What it is made of, where it is a pipeline.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pipeline: Option<PipelineLine>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DecisionLine {
    /// The request's id, cut at 128 bytes.
    pub request: String,
    /// Its number.
    pub seq: u64,
    /// How often it had been decided before.
    pub attempt: u32,
    /// Which part was placed.
    pub phase: PhaseName,
    /// 16 hexadecimal digits.
    pub session: Option<String>,
    /// The policy's clock, microseconds.
    pub now_us: u64,
    /// Microseconds since 1970.
    pub unix_us: u64,
    /// Of the request, cut at 256 bytes.
    pub model: String,
    /// Of the request.
    pub path: String,
    /// The pool's name.
    pub pool: String,
    /// Its route, counted from 1.
    pub route: usize,
    /// The id of a policy line before this one.
    pub policy: u32,
    /// Whether the fallback decided, since no policy did.
    pub fallback: bool,
    /// There where one call places both legs: whether a decode worker may do it alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pair_or_alone: Option<bool>,
    /// The candidates, row by row.
    pub ids: Vec<u32>,
    /// As the policy got them: the request's, then row after row.
    pub numbers: Numbers,
    /// The same for the columns besides.
    #[serde(skip_serializing_if = "no_numbers", default)]
    pub more_numbers: Numbers,
    /// What it asked on the way.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub transcript: Vec<NoteLine>,
    /// What a pipeline made its decision of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub weighing: Option<WeighingLine>,
    /// Whether it asked more than was noted: it cannot be repeated.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub truncated: bool,
    /// What it answered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<VerdictLine>,
    /// How it failed to answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<FaultLine>,
    /// Why its answer was not acted on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused: Option<String>,
    /// What was acted on; nothing where the fallback was asked next.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decided: Option<DecidedLine>,
    /// Microseconds the call took.
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
    /// To a candidate, or two.
    Route {
        row: u32,
        prefill: Option<u32>,
        score: Number,
    },
    /// Into the queue.
    Queue {
        order: Number,
        ask_again_ms: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waits_for: Option<WaitsForLine>,
    },
    /// Refused.
    Reject {
        status: u16,
        retry_after_ms: u32,
        reason: String,
    },
    /// To the fallback.
    Pass,
}

/// Whom a held request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsForLine {
    /// Row of the candidate.
    pub row: u32,
    /// What the request is there, in the policy's unit.
    pub work: u32,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultLine {
    /// As in metrics.
    pub kind: String,
    /// One line.
    pub detail: String,
}

/// What was acted on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum DecidedLine {
    /// Sent to a worker, by id, and before to a prefill worker.
    Route {
        /// That answers the client.
        worker: u32,
        /// That computes the prompt for it.
        prefill: Option<u32>,
    },
    /// Held.
    Queue {
        /// Milliseconds until it is asked again at the latest.
        ask_again_ms: u32,
    },
    /// Refused.
    Reject {
        /// The status the client got.
        status: u16,
    },
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct OutcomeLine {
    /// As in its decisions.
    pub request: String,
    /// As in its decisions.
    pub seq: u64,
    /// Microseconds since 1970.
    pub unix_us: u64,
    /// As in the metric `conductor_requests_total`.
    pub outcome: String,
    /// The worker's status.
    pub status: Option<u16>,
    /// The worker that answered, by name.
    pub worker: Option<String>,
    /// The one that computed the prompt for it.
    pub prefill: Option<String>,
    /// From the request's head to the first byte of a streamed answer.
    pub ttft_ms: Option<Number>,
    /// From the request's head to the end.
    pub duration_ms: Number,
    /// Tokens of the prompt, where they are known: the router's count, else the worker's.
    pub prompt_tokens: Option<u32>,
    /// Of those, tokens that the index said the worker holds.
    pub matched_tokens: Option<u32>,
    /// Tokens that the worker said were cached.
    pub cached_tokens: Option<u64>,
    /// Tokens of the answer, as the worker said.
    pub output_tokens: Option<u64>,
    /// Events of a streamed answer whose tokens the worker did not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer_events: Option<u64>,
    /// Tokens of a block of `blocks`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub block_tokens: Option<u32>,
    /// Of each complete block of the prompt the last [`BLOCK_HASH_BYTES`] of its chained hash, big endian.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub blocks: Option<Bytes>,
}

impl DecisionLine {
    /// What was asked on the way, as it was noted.
    #[must_use]
    pub fn noted(&self) -> Transcript {
        let notes = self.transcript.iter().map(NoteLine::noted);
        Transcript::of(notes.collect(), self.truncated)
    }
}

impl From<&routing::PolicyFault> for FaultLine {
    fn from(fault: &routing::PolicyFault) -> Self {
        Self {
            kind: fault.kind.as_str().to_owned(),
            detail: cut(&fault.detail, LONGEST_DETAIL).into_owned(),
        }
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
