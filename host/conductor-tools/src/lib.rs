//! Commands of the binary that serve nothing.
//!
//! [`policy`] has the tools of a policy's author, [`simulate`] runs policies on traces, [`explain`] shows
//! a decision of a running router. The policies run in the router's own runtime and within its limits.

pub mod args;
pub mod block_hashes;
pub mod client_key;
pub mod explain;
pub mod policy;
pub mod simulate;

pub use operator_tools::{Exit, UsageError, paint, print};
