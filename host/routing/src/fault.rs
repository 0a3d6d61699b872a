//! Faults of policies.

use std::sync::Arc;

use thiserror::Error;

/// Kind of a policy's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The policy trapped (a panic, an unreachable, a memory fault).
    Trap,
    /// The policy used up its time.
    Deadline,
    /// The policy ran out of stack.
    StackOverflow,
    /// The policy was refused memory and died of it.
    OutOfMemory,
    /// The policy returned an invalid verdict.
    InvalidVerdict,
    /// No instance could be had.
    NoInstance,
}

impl FaultKind {
    /// Every kind, for metrics.
    pub const ALL: [Self; 6] = [
        Self::Trap,
        Self::Deadline,
        Self::StackOverflow,
        Self::OutOfMemory,
        Self::InvalidVerdict,
        Self::NoInstance,
    ];

    /// Returns its name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Deadline => "deadline",
            Self::StackOverflow => "stack-overflow",
            Self::OutOfMemory => "out-of-memory",
            Self::InvalidVerdict => "invalid-verdict",
            Self::NoInstance => "no-instance",
        }
    }
}

/// Failure of a policy to decide.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("policy `{policy}` failed ({}): {detail}", kind.as_str())]
pub struct PolicyFault {
    /// The policy's name in the configuration.
    pub policy: Arc<str>,
    /// Kind of the failure.
    pub kind: FaultKind,
    /// One line for the log.
    pub detail: String,
}
