//! Pool of a snapshot: its workers, its queue, and the rules for its requests.

use std::sync::Arc;

use crate::base::current_state::CurrentState;
use crate::base::keep_alive::KeepAlive;
use crate::base::timeouts::RequestLimits;
use crate::dispatch::expectation::Expectation;
use crate::dispatch::metrics::PoolMetrics;
use crate::dispatch::split::PdPool;
use crate::fleet::pool::WorkerPool;
use crate::limits::admission::PoolQueue;
use crate::limits::retries::{RetryBudget, RetrySpec};
use crate::tokens::TokenSource;

/// Pool of a snapshot.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) workers: Arc<WorkerPool>,
    pub(crate) prompts: PromptRules,
    pub(crate) queue: PoolQueue,
    pub(crate) keep_alive: Option<KeepAlive>,
    pub(crate) bodies: BodyRules,
    pub(crate) pd: Option<PdPool>,
    pub(crate) retries: PoolRetries,
    /// Limits of the requests, once their bodies are read.
    pub(crate) limits: RequestLimits,
    pub(crate) metrics: PoolMetrics,
    /// State of the pool in the active snapshot.
    pub(crate) current: Arc<CurrentState<Self>>,
}

/// Sources of the knowledge about prompts.
#[derive(Debug)]
pub(crate) struct PromptRules {
    /// Source of a prompt's tokens.
    pub(crate) tokens: TokenSource,
    /// Prompts that the workers are expected to have cached, besides those that their events report.
    pub(crate) expectation: Expectation,
}

/// Rules for members of bodies that only routers set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyRules {
    /// Set if clients may set the members of a hand-over.
    pub(crate) accept_handover: bool,
    /// Set if each tenant's prompts have a `cache_salt` of its own.
    pub(crate) isolate_prefixes: bool,
}

/// Rules for retries, and the budget that pays for them.
#[derive(Debug)]
pub(crate) struct PoolRetries {
    pub(crate) spec: RetrySpec,
    pub(crate) budget: Arc<RetryBudget>,
}
