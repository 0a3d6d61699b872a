//! Fleet: each worker's state, health, models and cache knowledge.

pub(crate) mod catalog;
pub(crate) mod feeds;
pub(crate) mod health;
pub(crate) mod knowledge;
pub(crate) mod worker;
