//! Fleet report: the state of the fleet at one moment, for the pages that show it.

use std::sync::Arc;
use std::time::Duration;

use placement::RoleSet;
use routing::{Dialect, EngineReport, PolicyVersions, Worker};

use crate::dispatch::pool_state::PoolState;
use crate::dispatch::split::{DialectReport, PdPool};
use crate::fleet::catalog::ModelsReport;
use crate::fleet::failure_streak::StreakReport;
use crate::fleet::health::{HealthStatus, StateReport};
use crate::fleet::pool::Member;
use crate::limits::admission::BudgetReport;
use crate::request::snapshot::Snapshot;

/// An active pool.
#[derive(Debug)]
pub struct PoolReport {
    /// Name of the pool.
    pub name: Box<str>,
    /// Dialect of the pool's workers. `None` where requests are not split, or while the dialect is unknown.
    pub dialect: Option<Dialect>,
    /// Source of the dialect. `None` where requests are not split.
    pub dialect_report: Option<DialectReport>,
    /// Requests held in its queue.
    pub queued: usize,
    /// Requests under way and their limit, where they are limited.
    pub budget: Option<BudgetReport>,
    /// Set if a route to the pool has a policy that looks for cached prefixes.
    pub is_cache_aware: bool,
    /// Prompts whose tokens were not known in time.
    pub token_timeouts: Option<StreakReport>,
    /// Prompts whose tokens could not be determined.
    pub token_failures: Option<StreakReport>,
    /// Prefill answers that handed nothing over.
    pub handover_failures: Option<StreakReport>,
    /// Workers of the pool, in the order of the configuration.
    pub workers: Vec<WorkerReport>,
}

/// Returns `true` if those of the workers that are in service can answer a request. A prefill worker alone cannot.
pub(super) fn is_served<'w>(
    workers: impl Iterator<Item = (&'w Worker, Health)>,
    decodes_alone: bool,
) -> bool {
    let in_service = workers.filter(|(_, health)| health.is_in_service());
    let roles = in_service.fold(RoleSet::EMPTY, |roles, (worker, _)| roles.with(worker.role()));
    roles.has(RoleSet::MIXED) || roles.has(RoleSet::DECODE) && (decodes_alone || roles.has(RoleSet::PREFILL))
}

/// Report of a worker of a pool.
#[derive(Debug)]
pub struct WorkerReport {
    /// Spec and load of the worker.
    pub worker: Arc<Worker>,
    /// Health of the worker, which decides whether it gets requests.
    pub health: Health,
    /// Reason for the state, since when, and what comes next.
    pub reason: HealthReason,
    /// The engine's last report of its own load, and its age in milliseconds.
    pub engine: Option<(EngineReport, u64)>,
    /// Models that the worker lists.
    pub models: ModelsReport,
}

/// Reason of a worker's state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthReason {
    /// Description of the last failure, with its error. `None` while the worker has no failure on record. It never
    /// contains a prompt.
    pub text: Option<String>,
    /// Time since its state began. `None` where that is not known.
    pub lasted: Option<Duration>,
    /// Time until the state ends without a check, or the worker is tried or checked again. `None` where neither is
    /// planned.
    pub next_try: Option<Duration>,
    /// `true` once a check or a request to the worker has had a result.
    pub is_checked: bool,
}

/// Health of a worker, as its answers show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Never reached: the worker gets requests only where no worker in service is left.
    Pending,
    /// Nothing counts against the worker.
    Ok,
    /// In slow start: the worker gets a rising share of the requests.
    Returning,
    /// Ejected because requests failed on it.
    Ejected,
    /// Passed over for a while at the worker's own request.
    Busy,
    /// Failed its health probes.
    Unhealthy,
    /// Draining: the worker gets no new requests.
    Draining,
    /// Prefill worker whose bootstrap server has reported no engine id: it gets no leg.
    EngineUnknown,
}

impl Health {
    /// Every state in the order of its discriminant.
    pub(crate) const ALL: [Self; 8] = [
        Self::Pending,
        Self::Ok,
        Self::Returning,
        Self::Ejected,
        Self::Busy,
        Self::Unhealthy,
        Self::Draining,
        Self::EngineUnknown,
    ];

    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ok => "ok",
            Self::Returning => "returning",
            Self::Ejected => "ejected",
            Self::Busy => "busy",
            Self::Unhealthy => "unhealthy",
            Self::Draining => "draining",
            Self::EngineUnknown => "engine-unknown",
        }
    }

    pub(super) fn of(member: &Member, status: HealthStatus) -> Self {
        match status {
            _ if member.link.health.is_draining() => Self::Draining,
            HealthStatus::Pending => Self::Pending,
            HealthStatus::Ejected => Self::Ejected,
            HealthStatus::Busy => Self::Busy,
            HealthStatus::Unhealthy => Self::Unhealthy,
            _ if member.is_engine_unknown() => Self::EngineUnknown,
            HealthStatus::Returning => Self::Returning,
            HealthStatus::Serving => Self::Ok,
        }
    }

    /// Returns `true` if the worker gets requests while there are others.
    #[must_use]
    pub fn is_in_service(self) -> bool {
        matches!(self, Self::Ok | Self::Returning)
    }
}

impl HealthReason {
    pub(super) fn of(member: &Member, health: Health, state: StateReport, now_ms: u64) -> Self {
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
                text: Some("draining: it finishes its requests and gets no new ones".to_owned()),
                lasted: None,
                next_try: None,
                ..reason
            },
            (Health::EngineUnknown, Some(server)) => Self {
                text: Some(server.trouble()),
                lasted: None,
                next_try: server.next_try(),
                ..reason
            },
            _ => reason,
        }
    }
}

impl Snapshot {
    /// Returns the present state of its pools and their workers.
    #[must_use]
    pub fn report(&self) -> Vec<PoolReport> {
        let is_cache_aware = |at: usize| {
            let mut routes = self.routes.iter().filter(|route| route.pool == at);
            routes.any(|route| route.policies.all().any(PolicyVersions::needs_prefix))
        };
        let pools = self.pools.iter().enumerate();
        pools.map(|(at, pool)| report(pool, is_cache_aware(at))).collect()
    }

    /// Returns `true` if the workers in service of some pool can answer a request, or if there are no pools.
    #[must_use]
    pub(crate) fn is_served(&self) -> bool {
        let is_pool_served = |pool: &PoolState| {
            let workers = pool.workers.members.iter().map(|member| {
                let state = member.link.health.report(member.link.now_ms());
                (&*member.worker, Health::of(member, state.status))
            });
            is_served(workers, pool.pd.as_ref().is_some_and(PdPool::decodes_alone))
        };
        self.pools.is_empty() || self.pools.iter().any(|pool| is_pool_served(pool))
    }
}

fn report(pool: &PoolState, is_cache_aware: bool) -> PoolReport {
    let worker = |member: &Member| {
        let now_ms = member.link.now_ms();
        let state = member.link.health.report(now_ms);
        let health = Health::of(member, state.status);
        let engine = member.worker.load().engine();
        WorkerReport {
            worker: Arc::clone(&member.worker),
            health,
            reason: HealthReason::of(member, health, state, now_ms),
            engine: engine.map(|(report, at)| (report, now_ms.saturating_sub(at))),
            models: member.link.models.report(now_ms),
        }
    };
    PoolReport {
        name: pool.workers.name.clone(),
        dialect: pool.pd.as_ref().and_then(PdPool::dialect),
        dialect_report: pool.pd.as_ref().map(PdPool::dialect_report),
        queued: pool.queue.controller.len(),
        budget: pool
            .queue
            .admission
            .as_ref()
            .map(|_| BudgetReport::of(&pool.queue.controller)),
        is_cache_aware,
        token_timeouts: pool.workers.knowledge.timeouts.report(),
        token_failures: pool.workers.knowledge.failures.report(),
        handover_failures: pool.workers.knowledge.handovers.report(),
        workers: pool.workers.members.iter().map(worker).collect(),
    }
}
