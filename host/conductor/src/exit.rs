//! Exit codes: part of the command line's contract, so scripts may rely on them.

use std::process::ExitCode;

/// How a run of the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked.
    Success,
    /// `check` found mistakes; or the router could not start or go on.
    Failure,
    /// The command line or a file named on it could not be used. Clap's own code for a wrong command line.
    Usage,
    /// Requests were still running when the drain deadline passed, and were cut.
    DrainCut,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::DrainCut => 3,
        })
    }
}
