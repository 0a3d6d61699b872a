//! What wasmtime reports, as one of the router's kinds of fault and one line of text.

use routing::FaultKind;
use thiserror::Error;
use wasmtime::{Trap, WasmBacktrace};

use crate::budget::Overrun;

/// Innermost guest functions named in a line.
const FRAMES: usize = 4;

/// A call into a component failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {detail}", kind.as_str())]
pub struct Failure {
    /// How.
    pub kind: FaultKind,
    /// One line for the log: the cause, and where in the component.
    pub detail: String,
}

impl Failure {
    pub(crate) fn no_instance(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::NoInstance,
            detail: detail.into(),
        }
    }

    /// Names what a call died of. `refused` says that the instance was denied memory during it.
    pub(crate) fn of_call(error: &wasmtime::Error, refused: bool) -> Self {
        Self {
            kind: kind(error, refused),
            detail: detail(error),
        }
    }
}

fn kind(error: &wasmtime::Error, refused: bool) -> FaultKind {
    if error.is::<Overrun>() {
        return FaultKind::Deadline;
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => FaultKind::StackOverflow,
        Some(Trap::Interrupt) => FaultKind::Deadline,
        // A language's allocator gives up by a trap of its own choosing.
        Some(_) if refused => FaultKind::OutOfMemory,
        Some(_) => FaultKind::Trap,
        // With guest frames on the stack it sent nonsense to an import, which is as good as a trap; without, the
        // call had returned and its answer could not be read.
        None if error.is::<WasmBacktrace>() => FaultKind::Trap,
        None => FaultKind::InvalidVerdict,
    }
}

fn detail(error: &wasmtime::Error) -> String {
    let cause = error.root_cause().to_string();
    let mut line = cause.replace(char::is_control, " ");
    let frames = error.downcast_ref::<WasmBacktrace>().map(WasmBacktrace::frames);
    let mut names = frames
        .unwrap_or_default()
        .iter()
        .filter_map(|frame| frame.func_name())
        .take(FRAMES)
        .peekable();
    if names.peek().is_some() {
        line.push_str(" in ");
    }
    while let Some(name) = names.next() {
        line.push_str(name);
        if names.peek().is_some() {
            line.push_str(", called by ");
        }
    }
    line
}
