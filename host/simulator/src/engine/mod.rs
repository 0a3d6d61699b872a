//! Engines: simulated inference servers in virtual time.
//!
//! `cluster.rs` is the way in: workers, the links between them (`link.rs`), and when each has something to do
//! (`due_tree.rs`). A worker (`worker/`) goes from step to step: `worker/plan.rs` settles what the next one is made
//! of, out of the prompts (`prefill.rs`, in the order of `order.rs`) and the answers (`decode.rs`, whose tokens' times
//! are `gaps.rs`), and `step.rs` what it costs. Its cache is `cache.rs`, over the bookkeeping of `recency.rs`. Nothing
//! here is random, and nothing knows what a policy is.

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
