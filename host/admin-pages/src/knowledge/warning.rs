//! Warning about missing cache knowledge.

use serde::Serialize;

/// One kind of missing knowledge of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// A stable name.
    pub cause: &'static str,
    /// Missing knowledge and its reason; never a prompt.
    pub message: String,
    /// Cure.
    pub fix: &'static str,
    /// Failures so far, of those that are counted; else workers that are concerned.
    pub count: u64,
}
