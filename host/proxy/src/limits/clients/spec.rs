//! Configured clients, with their permissions and limits.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::key::KeyHash;

/// Configured client.
#[derive(Debug, Clone)]
pub struct ClientSpec {
    /// Unique name.
    pub name: Arc<str>,
    /// Hashes of its keys, unique among all clients.
    pub keys: Vec<KeyHash>,
    /// Globs (`*`, `?`) of allowed models; empty allows any.
    pub models: Vec<String>,
    /// Tenant for fair sharing of a pool.
    pub tenant: Arc<str>,
    /// Class of its requests; higher classes are served first.
    pub priority: i32,
    /// Weight of its tenant's share, above 0.
    pub weight: f64,
    /// Engine fields that it may set.
    pub may_set: EngineFields,
    /// Usage limits.
    pub limits: ClientLimits,
}

/// Usage limits of a client; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Requests per minute, above 0.
    pub requests: Option<NonZeroU32>,
    /// Tokens of prompts and responses per minute.
    pub tokens: Option<NonZeroU32>,
    /// Concurrent requests.
    pub concurrent: Option<NonZeroU32>,
}

/// Engine fields that a client may set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineFields {
    /// `priority`: an engine's scheduler serves the request before those of others.
    pub priority: bool,
    /// `X-data-parallel-rank`, `routed_dp_rank` and `data_parallel_rank`: an engine computes it on that rank, however
    /// busy.
    pub rank: bool,
}
