//! Engines: simulated inference servers in virtual time.
//!
//! `cluster.rs` is the entry point. It has the workers, the links between them (`link.rs`), and the time of each
//! worker's next event (`due_tree.rs`).
//!
//! A worker (`worker/`) runs one step after the other. `worker/plan.rs` composes a step of prompts (`prefill.rs`, in
//! the order of `order.rs`) and of answers (`decode.rs`, with the times between tokens of `gaps.rs`). `step.rs`
//! computes the time of a step. `cache.rs` is the worker's cache, in the order of last use that `recency.rs` keeps.
//!
//! The module draws no random numbers and has no policies.

mod cache;
mod cluster;
mod decode;
mod due_tree;
mod gaps;
mod job;
mod link;
mod order;
mod prefill;
mod recency;
mod step;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use cache::CacheEvent;
pub(crate) use cluster::Cluster;
pub(crate) use gaps::TokenGaps;
pub(crate) use job::{EngineEvent, EngineEventKind, EngineLoad, Fetch, Gauge, Job, JobKind, Reuse};
