//! Seam between front ends and placement.
//!
//! A head and a body come in. A worker with header changes, or a refusal, goes out, with a handle that is given the
//! status, the chunks and the end of the answer. HTTP (`request/handle.rs`) uses the parts of the seam:
//! [`ClientArrival`], [`open`], the placement session, and [`AnswerHandle`]. A front end that sends requests itself,
//! such as Envoy's external processing, uses [`Place`]. See `host/adr/0030-place-seam.md`.

mod answer_handle;
mod arrival;
mod failures;
mod front_end;
mod header_changes;
mod open;

pub use self::answer_handle::AnswerHandle;
pub(crate) use self::answer_handle::{AnswerHead, AnswerKind};
pub(crate) use self::arrival::{ClientArrival, ClientHeaders};
pub use self::failures::{AnswerFailure, SendFailure};
pub use self::front_end::{AnswerStart, AttemptTimeouts, Place, Placed, PlacedHandle, PlacedWorker};
pub use self::header_changes::HeaderChanges;
pub(crate) use self::open::{ArrivedRequest, OpenRequest, open};
