//! Fleet: each worker's state, health, models and cache knowledge.

pub(crate) mod bootstrap;
pub(crate) mod bootstrap_port;
pub(crate) mod catalog;
pub(crate) mod failure_streak;
pub(crate) mod feeds;
pub(crate) mod health;
pub(crate) mod knowledge;
mod latency;
pub(crate) mod metrics;
pub(crate) mod pool;
pub(crate) mod source;
mod tokenizer_circuit;
pub(crate) mod worker;
