//! Where traces come from, and what is in them: Mooncake's files, generators that stand in for them, and the facts of either. No files are
//! read here: who calls has the text.

mod facts;
mod mix;
mod mooncake;
mod pace;
mod recorded;

pub use facts::{Lengths, TraceFacts};
pub use mix::{Mix, MixOptions, UnknownMix};
pub use mooncake::{LineError, TraceError};
pub use recorded::{RecordedRequest, Recording};
