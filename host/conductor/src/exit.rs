//! Exit codes: part of the command line's contract, so scripts may rely on them.

use std::process::ExitCode;

use crate::config_source::ReadConfigError;
use crate::import::ImportError;
use crate::policy_tools::{LogError, SettingsError, SubjectError};
use crate::quick_flags::QuickFlagError;
use crate::simulate::BadInput;

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
    /// The user ended it with Ctrl-C; what was ready was printed. What a shell says of a program that SIGINT ended.
    Interrupted,
}

impl Exit {
    /// How a run ended that failed for this reason.
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Self {
        let usage = |cause: &(dyn std::error::Error + 'static)| {
            cause.is::<ReadConfigError>()
                || cause.is::<QuickFlagError>()
                || cause.is::<ImportError>()
                || cause.is::<SubjectError>()
                || cause.is::<SettingsError>()
                || cause.is::<LogError>()
                || cause.is::<BadInput>()
        };
        if error.chain().any(usage) {
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
    use anyhow::Context;

    use super::*;
    use crate::cli::QuickArgs;
    use crate::config_source::ConfigSource;
    use crate::quick_flags::from_flags;

    #[test]
    fn what_was_typed_wrong_is_told_from_what_went_wrong() {
        let unreadable = ConfigSource::File("/nowhere/conductor.toml".into()).read();
        let error = unreadable.context("start").unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Usage);
        let args = QuickArgs {
            worker: vec!["http://127.0.0.1:1,weight=2".into()],
            ..QuickArgs::default()
        };
        let nonsense = from_flags(&args, false);
        assert_eq!(Exit::of(&nonsense.unwrap_err().into()), Exit::Usage);
        assert_eq!(Exit::of(&anyhow::anyhow!("no port")), Exit::Failure);
    }
}
