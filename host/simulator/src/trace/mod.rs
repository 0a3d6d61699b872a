//! Traces: Mooncake's files, generators that stand in for them, recordings, and their facts. No files are read here:
//! the caller has the text.

mod facts;
mod mix;
mod mooncake;
mod pace;
mod recorded;
mod sessions;

pub use facts::{Lengths, TraceFacts};
pub use mix::{Mix, MixOptions, UnknownMix};
pub use mooncake::{LineError, TraceError};
pub use recorded::{RecordedRequest, Recording};
