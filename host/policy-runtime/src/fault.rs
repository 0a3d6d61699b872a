//! Faults: wasmtime's errors as one of the router's fault kinds and one line of text.

use routing::FaultKind;
use thiserror::Error;
use wasmtime::{Trap, WasmBacktrace};

use crate::budget::BudgetOverrun;
use crate::text::one_line;

/// Most guest functions in a line, innermost first.
const FRAMES: usize = 4;
/// Longest name of a guest function in a line, in bytes. A component chooses its names.
const MAX_NAME: usize = 256;
/// Longest text of a failure, in bytes: it goes into the log and into the records of decisions.
const MAX_DETAIL: usize = 1024;

/// Failure of a call into a component.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {detail}", kind.as_str())]
pub struct Failure {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// One line of at most 1 KiB for the log: the cause, and the position in the component.
    pub detail: String,
}

impl Failure {
    /// Creates a failure. Its text is cut and cleaned, since parts of it may come from the component.
    pub(crate) fn new(kind: FaultKind, detail: &str) -> Self {
        Self {
            kind,
            detail: one_line(detail, MAX_DETAIL),
        }
    }

    pub(crate) fn no_instance(detail: impl AsRef<str>) -> Self {
        Self::new(FaultKind::NoInstance, detail.as_ref())
    }

    /// Classifies the error of a call. `refused`: the instance was denied memory during the call.
    pub(crate) fn of_call(error: &wasmtime::Error, refused: bool) -> Self {
        Self::new(kind(error, refused), &detail(error))
    }
}

fn kind(error: &wasmtime::Error, refused: bool) -> FaultKind {
    if error.is::<BudgetOverrun>() {
        return FaultKind::Deadline;
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => FaultKind::StackOverflow,
        Some(Trap::Interrupt) => FaultKind::Deadline,
        // A language's allocator reports failure by a trap of its own.
        Some(_) if refused => FaultKind::OutOfMemory,
        Some(_) => FaultKind::Trap,
        // With guest frames on the stack the guest passed invalid values to an import, which counts as a trap. Without
        // frames the call had returned an unreadable answer.
        None if error.is::<WasmBacktrace>() => FaultKind::Trap,
        None => FaultKind::InvalidVerdict,
    }
}

fn detail(error: &wasmtime::Error) -> String {
    let mut line = error.root_cause().to_string();
    let frames = error.downcast_ref::<WasmBacktrace>().map(WasmBacktrace::frames);
    let mut names = frames
        .unwrap_or_default()
        .iter()
        .filter_map(|frame| frame.func_name())
        .take(FRAMES)
        .map(|name| one_line(name, MAX_NAME))
        .peekable();
    if names.peek().is_some() {
        line.push_str(" in ");
    }
    while let Some(name) = names.next() {
        line.push_str(&name);
        if names.peek().is_some() {
            line.push_str(", called by ");
        }
    }
    line
}
