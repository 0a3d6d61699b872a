//! Seam between front ends and placement: a head and a body come in; a worker with its header changes, or a refusal,
//! goes out, with a handle that is given the status, the chunks and the end of the answer.

mod answer_handle;
mod open;

pub(crate) use self::answer_handle::{AnswerHandle, AnswerHead, AnswerKind};
pub(crate) use self::open::{ArrivedRequest, OpenRequest, open};
