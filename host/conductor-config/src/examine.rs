//! A file read as far as it can be, with its mistakes.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::diagnostic::Diagnostics;

/// Policies of which something could not be read, by their names.
pub(crate) type Doubts = BTreeMap<String, Doubt>;

/// A configuration with its mistakes and warnings.
#[derive(Debug, Clone)]
pub struct Examined {
    /// What could be read; the rest stands as its default. Not to be used by a router unless there is no error.
    pub config: Config,
    /// Every mistake and warning.
    pub diagnostics: Diagnostics,
    /// Policies of which something could not be read, by their names.
    pub doubts: BTreeMap<String, Doubt>,
}

/// What of a policy could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// Where it comes from: it cannot be loaded.
    Source,
    /// Some of its settings: what the policy says of the parameters that are written holds, what it misses may be there.
    Settings,
}
