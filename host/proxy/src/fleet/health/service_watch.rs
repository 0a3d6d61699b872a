//! Watch over workers that are out of service. Reports to the source of the fleet which pools have such a worker back,
//! since their queues wait for capacity. Logs the first failure of workers that were never reached, and their entry.

use std::collections::HashMap;

use routing::WorkerId;
use tracing::{info, warn};

use super::HealthStatus;
use crate::fleet::pool::{Member, WorkerPool};
use crate::fleet::source::{ActiveFleet, FleetSource};

/// Workers that were not wholly in service at the last look.
#[derive(Debug, Default)]
pub(super) struct ServiceWatch {
    /// By the name of the pool.
    pools: HashMap<Box<str>, HashMap<WorkerId, AbsentWorker>>,
}

/// Worker that is not wholly in service.
#[derive(Debug, Clone, Copy)]
struct AbsentWorker {
    level: ServiceLevel,
    is_pending: bool,
    /// `true` once the failure to reach a pending worker was logged.
    is_logged: bool,
}

/// Share of the requests that a worker may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ServiceLevel {
    Out,
    /// In slow start, which admits only some requests.
    Returning,
    Whole,
}

impl ServiceLevel {
    /// Returns the level of a member. Draining does not count: only a new configuration ends it.
    fn of(member: &Member) -> Self {
        if member.is_engine_unknown() {
            return Self::Out;
        }
        match member.link.status() {
            HealthStatus::Serving => Self::Whole,
            HealthStatus::Returning => Self::Returning,
            HealthStatus::Pending | HealthStatus::Ejected | HealthStatus::Busy | HealthStatus::Unhealthy => {
                Self::Out
            }
        }
    }
}

impl ServiceWatch {
    /// Compares the fleet with the last look. A pool is reported once, however many workers it has back, so that
    /// workers whose health changes all the time cost its queue no more than that.
    pub(super) fn look(&mut self, fleet: &ActiveFleet, source: &impl FleetSource) {
        let mut before = std::mem::take(&mut self.pools);
        for pool in &fleet.pools {
            let were = before.remove(&pool.name).unwrap_or_default();
            let (absent, is_any_back) = look_at(pool, &were);
            if is_any_back {
                source.entered_service(pool);
            }
            if !absent.is_empty() {
                self.pools.insert(pool.name.clone(), absent);
            }
        }
    }
}

/// Returns the workers of the pool that are not wholly in service, and `true` if one is back since the last look.
fn look_at(
    pool: &WorkerPool,
    were: &HashMap<WorkerId, AbsentWorker>,
) -> (HashMap<WorkerId, AbsentWorker>, bool) {
    let (mut absent, mut is_any_back) = (HashMap::new(), false);
    for member in &pool.members {
        let level = ServiceLevel::of(member);
        let was = were.get(&member.worker.id());
        is_any_back |= was.is_some_and(|was| was.level < level);
        let is_pending = member.link.health.is_pending();
        if was.is_some_and(|was| was.is_pending) && !is_pending {
            info!(
                worker = &*member.worker.spec().name,
                pool = &*pool.name,
                "a worker was reached for the first time and is in service"
            );
        }
        if is_pending || level < ServiceLevel::Whole {
            let is_logged = was.is_some_and(|was| was.is_logged);
            let now = AbsentWorker {
                level,
                is_pending,
                is_logged: is_logged || (is_pending && report_failure(member)),
            };
            absent.insert(member.worker.id(), now);
        }
    }
    (absent, is_any_back)
}

/// Logs the reason why a worker was not reached, where a check has failed. Returns `true` if one has.
fn report_failure(member: &Member) -> bool {
    let report = member.link.health.report(member.link.now_ms());
    if report.is_checked {
        warn!(
            worker = &*member.worker.spec().name,
            reason = report.reason,
            "a worker cannot be reached yet: it is pending, gets requests only where no worker in service is left, \
             and is checked again until it answers"
        );
    }
    report.is_checked
}
