//! The fleet as it is at one moment, for the pages that show it.

use std::sync::Arc;
use std::time::Duration;

use routing::{Dialect, EngineSaid, PolicyVersions, Worker};

use crate::dispatch::split::{DialectReport, PdPool};
use crate::fleet::catalog::ModelsReport;
use crate::fleet::health::{HealthStatus, StateReport};
use crate::fleet::knowledge::SpellReport;
use crate::fleet::pool::Member;
use crate::limits::admission::BudgetReport;
use crate::request::snapshot::{PoolState, Snapshot};

/// A pool in force.
#[derive(Debug)]
pub struct PoolReport {
    /// Its name.
    pub name: Box<str>,
    /// What its workers speak; none where requests are not split, or while it is unknown.
    pub dialect: Option<Dialect>,
    /// How that became known; none where requests are not split.
    pub dialect_report: Option<DialectReport>,
    /// Requests held in its queue.
    pub queued: usize,
    /// How much it has under way, where that is limited.
    pub budget: Option<BudgetReport>,
    /// Whether a route to it has a policy that looks for cached prefixes.
    pub is_cache_aware: bool,
    /// Prompts whose tokens were not known in time.
    pub token_timeouts: Option<SpellReport>,
    /// Prompts whose tokens could not be learnt.
    pub token_failures: Option<SpellReport>,
    /// Prefill answers that handed nothing over.
    pub handover_failures: Option<SpellReport>,
    /// Its workers, in the order of the configuration.
    pub workers: Vec<WorkerReport>,
}

/// A worker of a pool.
#[derive(Debug)]
pub struct WorkerReport {
    /// Its spec and its load.
    pub worker: Arc<Worker>,
    /// Whether it is sent requests.
    pub health: Health,
    /// Why, since when, and what comes next.
    pub reason: HealthReason,
    /// What its engine said last of its own load, and how many milliseconds ago.
    pub engine: Option<(EngineSaid, u64)>,
    /// What it lists as its models.
    pub models: ModelsReport,
}

/// Reason of a worker's state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthReason {
    /// What is the matter, with the last error; none while nothing speaks against the worker. Never a prompt.
    pub text: Option<String>,
    /// How long it has been in its state; none where that is not known.
    pub lasted: Option<Duration>,
    /// Until the state ends by itself or the worker is tried or checked again; none where neither is planned.
    pub next_try: Option<Duration>,
    /// Whether a check or a request has found anything out about it yet.
    pub is_checked: bool,
}

/// Whether a worker is sent requests, as far as its answers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It was never reached: it gets requests only where no worker in service is left.
    Pending,
    /// Nothing speaks against it.
    Ok,
    /// It came back, and gets a rising share of the requests.
    Returning,
    /// It failed requests and is kept away from.
    Resting,
    /// It asked to be passed over for a while.
    Busy,
    /// It failed its health probes.
    Unhealthy,
    /// It is to get no new requests.
    Draining,
    /// A prefill worker whose bootstrap server has told no engine id: it gets no leg.
    EngineUnknown,
}

impl Health {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ok => "ok",
            Self::Returning => "returning",
            Self::Resting => "ejected",
            Self::Busy => "busy",
            Self::Unhealthy => "unhealthy",
            Self::Draining => "draining",
            Self::EngineUnknown => "engine-unknown",
        }
    }

    fn of(member: &Member, stance: HealthStatus) -> Self {
        let engines = member.bootstrap.as_ref().and_then(|server| server.engines());
        match (stance, engines) {
            _ if member.link.health.is_draining() => Self::Draining,
            (HealthStatus::Pending, _) => Self::Pending,
            (HealthStatus::Resting, _) => Self::Resting,
            (HealthStatus::Busy, _) => Self::Busy,
            (HealthStatus::Unhealthy, _) => Self::Unhealthy,
            (_, Some(0)) => Self::EngineUnknown,
            (HealthStatus::Returning, _) => Self::Returning,
            (HealthStatus::Serving, _) => Self::Ok,
        }
    }

    /// Whether it is sent requests while there are others.
    #[must_use]
    pub fn is_in_service(self) -> bool {
        matches!(self, Self::Ok | Self::Returning)
    }
}

impl HealthReason {
    fn of(member: &Member, health: Health, state: StateReport, now_ms: u64) -> Self {
        let reason = Self {
            text: state.reason,
            lasted: Some(Duration::from_millis(now_ms.saturating_sub(state.since_ms))),
            next_try: state
                .next_ms
                .map(|next_ms| Duration::from_millis(next_ms.saturating_sub(now_ms))),
            is_checked: state.is_checked,
        };
        match (health, &member.bootstrap) {
            (Health::Draining, _) => Self {
                text: Some("`drain = true`: it finishes its requests and gets no new ones".to_owned()),
                lasted: None,
                next_try: None,
                ..reason
            },
            (Health::EngineUnknown, Some(server)) => Self {
                text: Some(server.trouble()),
                lasted: None,
                next_try: Some(server.next_try()),
                ..reason
            },
            _ => reason,
        }
    }
}

impl Snapshot {
    /// Its pools and their workers as they are now.
    #[must_use]
    pub fn report(&self) -> Vec<PoolReport> {
        let is_cache_aware = |at: usize| {
            let mut routes = self.routes.iter().filter(|route| route.pool == at);
            routes.any(|route| route.policies().any(PolicyVersions::needs_prefix))
        };
        let pools = self.pools.iter().enumerate();
        pools.map(|(at, pool)| report(pool, is_cache_aware(at))).collect()
    }
}

fn report(pool: &PoolState, is_cache_aware: bool) -> PoolReport {
    let worker = |member: &Member| {
        let now_ms = member.link.now_ms();
        let state = member.link.health.report(now_ms);
        let health = Health::of(member, state.stance);
        let engine = member.worker.load().engine();
        WorkerReport {
            worker: Arc::clone(&member.worker),
            health,
            reason: HealthReason::of(member, health, state, now_ms),
            engine: engine.map(|(said, at)| (said, now_ms.saturating_sub(at))),
            models: member.link.models.report(now_ms),
        }
    };
    PoolReport {
        name: pool.workers.name.clone(),
        dialect: pool.pd.as_ref().and_then(PdPool::dialect),
        dialect_report: pool.pd.as_ref().map(PdPool::dialect_report),
        queued: pool.queue.len(),
        budget: pool.admission.as_ref().map(|_| BudgetReport::of(&pool.queue)),
        is_cache_aware,
        token_timeouts: pool.workers.knowledge.timeouts.report(),
        token_failures: pool.workers.knowledge.failures.report(),
        handover_failures: pool.workers.knowledge.handovers.report(),
        workers: pool.workers.members.iter().map(worker).collect(),
    }
}
