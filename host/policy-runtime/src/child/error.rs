//! Errors of a compiler process.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

/// A child process did not compile a component.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The process, a pipe or a thread for it cannot be created.
    #[error("start `{}` to compile it", program.display())]
    Start {
        /// The router's own program.
        program: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The process needed more memory.
    #[error(
        "compile it within {most} bytes of memory: make it smaller, or raise `memory` of `[policy-compile]`"
    )]
    Memory {
        /// Value of [`ChildLimits::memory_bytes`].
        most: u64,
    },
    /// The process needed more memory than the limit of the control group leaves.
    #[error(
        "compile it within the {room} bytes that the memory limit of the container leaves: raise that limit, or make \
         the component smaller"
    )]
    Room {
        /// Bytes below the limit that are left for the process.
        room: u64,
    },
    /// The process needed more CPU time.
    #[error("compile it within {most:?} of CPU time: make it smaller, or raise `cpu` of `[policy-compile]`")]
    Cpu {
        /// Value of [`ChildLimits::cpu`].
        most: Duration,
    },
    /// The process took too long.
    #[error("compile it within {most:?}: make it smaller, or raise `time` of `[policy-compile]`")]
    Time {
        /// Value of [`ChildLimits::time`].
        most: Duration,
    },
    /// The process returned more code than any policy has.
    #[error("compile it to at most {most} bytes of machine code: make it smaller")]
    Code {
        /// The limit.
        most: u64,
    },
    /// The process ended for another reason.
    #[error("compile it: the compiler's process ended with {status}, saying {words:?}")]
    Died {
        /// Exit status.
        status: ExitStatus,
        /// The end of its standard error.
        words: String,
    },
    /// The code is for another engine.
    #[error("take the code of the compiler's process, which is for another engine")]
    OtherEngine(#[source] Box<dyn StdError + Send + Sync>),
}

impl ChildError {
    /// Returns `true` if the machine may be at fault: the same component may compile at another attempt.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Start { .. } | Self::Died { .. } | Self::Time { .. } | Self::Room { .. }
        )
    }

    pub(super) fn result(&self) -> &'static str {
        match self {
            Self::Start { .. } => "not-started",
            Self::Memory { .. } | Self::Room { .. } => "memory",
            Self::Cpu { .. } => "cpu",
            Self::Time { .. } => "time",
            Self::Code { .. } => "code",
            Self::Died { .. } | Self::OtherEngine(_) => "died",
        }
    }
}
