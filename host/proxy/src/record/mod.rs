//! What was decided, why, and how it ended: a sample of it as lines of a file, and the latest of it in memory to be explained.
//!
//! A request is recorded or not from its arrival on ([`RecordSpec`]); one that is not pays for that question alone. What is
//! recorded of one is its [`Trace`]: each call of a policy with everything it was made from, and the outcome. The [`Recorder`]
//! keeps the latest traces and hands the rest to one thread that writes ([`writer`]); whatever does not fit is dropped and
//! counted, never waited for. The text of prompts is nowhere in it, and of headers only what a policy asked for.

mod call_note;
mod explained;
mod file;
mod line;
mod metrics;
mod note_line;
mod number;
mod outlet;
mod pipeline_line;
mod prompt_blocks;
mod recorder;
mod room;
mod shadow_line;
mod spec;
mod trace;
mod writer;

pub(crate) use self::call_note::{CallNote, Checked, NotedWorker, Subject, unix_us};
pub use self::explained::{Explained, ExplainedCall};
pub use self::file::FileSpec;
pub use self::line::{
    BLOCK_HASH_BYTES, DecidedLine, DecisionLine, FaultLine, Line, LogLine, OutcomeLine, PhaseName,
    PolicyLine, SCHEMA, VerdictLine, WorkerLine,
};
pub use self::note_line::{AboutLine, Bytes, NoteLine, RefusalName, RoleName, TierName};
pub use self::number::{Number, Numbers};
pub use self::pipeline_line::{
    FilterLine, PickLine, PipelineLine, ScoredLine, TermLine, TestLine, WeighingLine,
};
pub use self::recorder::{RecordFiles, RecordPlan, Recorder};
pub(crate) use self::shadow_line::{ChoiceLine, ShadowLine};
pub use self::spec::{RecordSpec, Sampling};
pub(crate) use self::trace::Trace;
