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
            HealthStatus::Returning => Self::Returning,
            status if status.is_out() => Self::Out,
            _ => Self::Whole,
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
        // A pending worker is out.
        if level < ServiceLevel::Whole {
            let is_logged = was.is_some_and(|was| was.is_logged);
            let now = AbsentWorker {
                level,
                is_pending,
                is_logged: is_logged || (is_pending && report_failure(pool, member)),
            };
            absent.insert(member.worker.id(), now);
        }
    }
    (absent, is_any_back)
}

/// Logs the reason why a worker was not reached, where a check has failed. Returns `true` if one has.
fn report_failure(pool: &WorkerPool, member: &Member) -> bool {
    let report = member.link.health.report(member.link.now_ms());
    if report.is_checked {
        warn!(
            worker = &*member.worker.spec().name,
            pool = &*pool.name,
            reason = report.reason,
            "a worker cannot be reached yet: it is pending, gets requests only where no worker in service is left, \
             and is checked again until it answers"
        );
    }
    report.is_checked
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use placement::FleetVersion;
    use routing::{Generation, Worker, WorkerSpec};
    use worker_client::{Authorization, ConnectionPool, ConnectionsSpec};

    use super::super::{Finding, HealthSpec, ProbeSpec};
    use super::*;
    use crate::fleet::catalog::ModelCatalog;
    use crate::fleet::metrics::FleetMetrics;
    use crate::fleet::pool::CheckRules;
    use crate::fleet::worker::WorkerHandle;

    /// Counts the reports of pools that have a worker back.
    #[derive(Default)]
    struct Reports(AtomicUsize);

    impl FleetSource for Reports {
        fn active(&self) -> ActiveFleet {
            fleet([])
        }

        fn entered_service(&self, _pool: &WorkerPool) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn fleet<const N: usize>(pools: [Arc<WorkerPool>; N]) -> ActiveFleet {
        ActiveFleet {
            generation: Generation(1),
            pools: pools.into(),
        }
    }

    /// Rules by which one probe decides.
    fn rules(slow_start: Duration) -> HealthSpec {
        HealthSpec {
            probe: Some(ProbeSpec {
                unhealthy_after: 1,
                healthy_after: 1,
                ..ProbeSpec::default()
            }),
            slow_start,
            ..HealthSpec::default()
        }
    }

    fn probe(pool: &WorkerPool, finding: Finding) {
        for member in &pool.members {
            member.link.health.probed(finding, member.link.now_ms());
        }
    }

    /// Creates a pool of two workers in service whose slow start outlasts any test.
    fn pool() -> Arc<WorkerPool> {
        let member = |id| {
            let worker = Worker::new(WorkerId(id), WorkerSpec::mixed("worker", "http://worker:1"));
            let upstream = ConnectionPool::new("http://worker:1").unwrap();
            let link = WorkerHandle::new(&worker, upstream, FleetMetrics::default().worker("worker"));
            link.health
                .set_rules(&rules(Duration::from_secs(9_999)), "worker");
            Member {
                worker: Arc::new(worker),
                link: Arc::new(link),
                bootstrap: None,
            }
        };
        let pool = WorkerPool {
            version: FleetVersion::unique(),
            name: "main".into(),
            members: [0, 1].map(member).into(),
            catalog: ModelCatalog::new(&[], vec![], false),
            model_list: None,
            authorization: Authorization::Pass,
            connections: ConnectionsSpec::default(),
            checks: CheckRules {
                health: HealthSpec::default(),
                scrape: None,
            },
            knowledge: Arc::default(),
        };
        probe(&pool, Finding::Well);
        Arc::new(pool)
    }

    #[test]
    fn a_pool_is_reported_once_a_look_as_its_workers_return_and_again_as_their_slow_start_ends() {
        let (mut watch, reports, pool) = (ServiceWatch::default(), Reports::default(), pool());
        let mut look = || {
            watch.look(&fleet([Arc::clone(&pool)]), &reports);
            reports.0.swap(0, Ordering::Relaxed)
        };
        assert_eq!(look(), 0, "both are in service");
        for _ in 0..3 {
            probe(&pool, Finding::Unwell);
            assert_eq!(look(), 0);
            probe(&pool, Finding::Well);
            assert_eq!(look(), 1, "both return");
            assert_eq!(look(), 0);
        }
        for member in &pool.members {
            member.link.health.set_rules(&rules(Duration::ZERO), "worker");
        }
        assert_eq!(look(), 1, "their slow start has ended");
        assert_eq!(look(), 0);
    }
}
