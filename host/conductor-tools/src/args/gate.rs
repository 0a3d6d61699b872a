//! Arguments of the checks on an idle fleet.

use clap::{Args, ValueEnum};

/// Verdicts on an idle fleet that the check allows.
#[derive(Debug, Default, Clone, Args)]
pub struct GateArgs {
    /// Allow this verdict for requests of an idle fleet, which otherwise fails the check.
    #[arg(long, value_enum, value_name = "VERDICT", value_delimiter = ',')]
    pub allow: Vec<IdleVerdict>,
}

/// Undesired verdicts on an idle fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IdleVerdict {
    /// Pass: the fallback decides.
    Pass,
    /// Reject: the client gets an error.
    Reject,
}

impl GateArgs {
    /// Returns true if the check allows this verdict.
    #[must_use]
    pub fn allows(&self, verdict: IdleVerdict) -> bool {
        self.allow.contains(&verdict)
    }
}
