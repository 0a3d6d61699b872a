//! Output of a log: a file with rotation, or the standard output.

use std::io::{self, Write};

use crate::file::LogFile;
use crate::kind::LogKind;
use crate::target::LogTarget;

/// Open output.
#[derive(Debug)]
pub(crate) enum LogOutput {
    File(LogFile),
    Stdout,
}

impl LogOutput {
    /// Opens an output.
    pub(crate) fn open(target: LogTarget, kind: LogKind) -> io::Result<Self> {
        match target {
            LogTarget::Stdout => Ok(Self::Stdout),
            LogTarget::File(spec) => LogFile::open(spec, kind).map(Self::File),
        }
    }

    /// Returns whether `more` bytes fill it.
    pub(crate) fn is_full_with(&self, more: usize) -> bool {
        match self {
            Self::File(file) => file.is_full_with(more),
            Self::Stdout => false,
        }
    }

    /// Appends complete lines.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.append(lines),
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()
            }
        }
    }

    /// Returns whether another program truncated it.
    pub(crate) fn is_truncated(&self) -> bool {
        match self {
            Self::File(file) => file.is_truncated(),
            Self::Stdout => false,
        }
    }

    /// Opens it again after a truncation.
    pub(crate) fn restart(self) -> io::Result<Self> {
        match self {
            Self::File(file) => file.restart().map(Self::File),
            Self::Stdout => Ok(Self::Stdout),
        }
    }

    /// Returns whether another program moved it.
    pub(crate) fn is_gone(&mut self) -> bool {
        match self {
            Self::File(file) => file.is_gone(),
            Self::Stdout => false,
        }
    }

    /// Rotates it.
    pub(crate) fn rotate(self) -> io::Result<Self> {
        match self {
            Self::File(file) => file.rotate().map(Self::File),
            Self::Stdout => Ok(Self::Stdout),
        }
    }
}
