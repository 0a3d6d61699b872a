//! Commands of the binary that serve nothing.
//!
//! [`policy`] has the tools of a policy's author, [`simulate`] runs policies on traces, [`remote`] and [`explain`]
//! query a running router. The policies run in the router's own runtime and within its limits.

pub mod args;
pub mod block_hashes;
pub mod client_key;
mod exit;
pub mod explain;
pub mod paint;
pub mod policy;
pub mod print;
mod remote;
pub mod simulate;

pub use exit::{Exit, UsageError};
