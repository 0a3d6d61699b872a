//! Output of a log: a file, or the standard output.

use crate::file::FileSpec;

/// Output of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// The standard output of the process, without rotation.
    Stdout,
    /// A file with rotation.
    File(FileSpec),
}
