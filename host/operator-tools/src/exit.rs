//! Exit codes: a part of the command line's contract that scripts rely on.

use std::process::ExitCode;

use thiserror::Error;

/// End of a run of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Success,
    /// `check` found mistakes, or the router could not start or continue.
    Failure,
    /// The command line, or a file that it names, is unusable. Clap has the same code for a wrong command line.
    Usage,
    /// Requests were cut because they were still running at the drain deadline.
    DrainCut,
    /// The user pressed Ctrl-C, and the finished results were printed. Shells report the same code after SIGINT.
    Interrupted,
}

/// Marker of an error in the command line or in a file that it names: the run ends with [`Exit::Usage`].
#[derive(Debug, Error)]
#[error(transparent)]
pub struct UsageError(anyhow::Error);

impl UsageError {
    /// Marks an error.
    #[must_use]
    pub fn new(error: impl Into<anyhow::Error>) -> Self {
        Self(error.into())
    }
}

impl Exit {
    /// Returns the end of a run that failed with this error.
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Self {
        if error.chain().any(<dyn std::error::Error>::is::<UsageError>) {
            Self::Usage
        } else {
            Self::Failure
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::DrainCut => 3,
            Exit::Interrupted => 130,
        })
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn a_marked_error_is_a_usage_error_under_any_context_and_reads_as_before() {
        let marked = Err::<(), _>(UsageError::new(anyhow!("no file").context("read it")));
        let error = marked.context("start").unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Usage);
        assert_eq!(format!("{error:#}"), "start: read it: no file");
        assert_eq!(Exit::of(&anyhow!("no port")), Exit::Failure);
    }
}
