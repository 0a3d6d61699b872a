//! Warning about missing cache knowledge.

use serde::Serialize;

/// One kind of missing knowledge of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Warning {
    /// A stable name.
    pub(crate) cause: &'static str,
    /// Missing knowledge and its reason; never a prompt.
    pub(crate) message: String,
    /// Cure.
    pub(crate) fix: &'static str,
    /// Failures so far, of those that are counted; else workers that are concerned.
    pub(crate) count: u64,
}
