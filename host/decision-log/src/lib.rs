//! Decision log: a sample of decisions and outcomes as JSON lines in a file, and the latest ones in memory.
//!
//! A request is selected for recording at its arrival ([`RecordSpec`]). A request that is not selected costs only that
//! check. The record of a request is its [`Trace`]: every policy call with its inputs, and the outcome. The
//! [`Recorder`] keeps the latest traces for `explain` and sends lines to a writer thread. Records for which there is no
//! memory are dropped and counted; a request never waits. The log contains no prompt text, and only headers that a
//! policy read.
//!
//! The access log ([`AccessLine`]) has one line for each request, written by a thread of the same kind.
//!
//! The crate uses no HTTP library. Readers use the same line types, through `serde`.

mod access;
mod call;
mod described;
mod explained;
mod fault_line;
mod file;
mod host_call_line;
mod kind;
mod line;
mod memory;
mod message;
mod metrics;
mod number;
mod output;
mod pipeline_line;
mod prompt_blocks;
mod recorder;
mod request_note;
mod selection;
mod sender;
mod shadow_line;
mod stages;
mod summary;
mod target;
mod text;
mod trace;
mod trace_start;
mod writer;

pub use access::{
    AccessEnd, AccessLine, AccessPlacement, AccessPolicy, AccessRequest, AccessSize, AccessStages,
    AccessTimes,
};
pub use call::{CallNote, Checked, LoggedWorker, Subject};
pub use explained::{Explained, ExplainedCall};
pub use fault_line::FaultLine;
pub use file::FileSpec;
pub use host_call_line::{AboutLine, Bytes, HostCallLine, RefusalName, RoleName, TierName};
pub use line::{
    BLOCK_HASH_BYTES, DecidedLine, DecisionLine, Line, LogLine, OutcomeLine, PhaseName, PolicyLine, SCHEMA,
    VerdictLine, WorkerLine,
};
pub use number::{Number, Numbers};
pub use pipeline_line::{FilterLine, PickLine, PipelineLine, ScoredLine, TermLine, TestLine, WeighingLine};
pub use prompt_blocks::PromptBlocks;
pub use recorder::{RecordFiles, RecordPlan, Recorder};
pub use selection::{RecordSpec, Sampling};
pub use shadow_line::{ChoiceLine, ShadowLine};
pub use stages::{Stage, StageSpan};
pub use summary::{
    RequestSummary, SummarizedDecision, SummarizedEnd, SummarizedRequest, SummarizedTokens, TraceMark,
};
pub use target::LogTarget;
pub use text::unix_us;
pub use trace::{ResponseUsage, Trace};
pub use trace_start::TraceStart;
