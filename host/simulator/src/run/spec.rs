//! Specification of a run, beside its trace and its policies.

use crate::outcome::LatencyTargets;
use crate::router::RouterSpec;
use crate::spec::ClusterSpec;

/// A worker that fails and comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Failing worker.
    pub worker: usize,
    /// Time in microseconds of the run.
    pub at_us: u64,
    /// Time of its return with an empty cache; none: never.
    pub back_us: Option<u64>,
}

/// Specification of a run.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The engines.
    pub cluster: ClusterSpec,
    /// Each of the routers.
    pub router: RouterSpec,
    /// Limits that requests should meet.
    pub limits: LatencyTargets,
    /// Workers that fail.
    pub failures: Vec<Failure>,
    /// Interval of the engines' load reports, in microseconds; 0 for none. The server scrapes every 2 s.
    pub scrape_every_us: u64,
    /// Period of [`crate::Outcome::samples`], in microseconds; 0 for never. The period is doubled, repeatedly, where
    /// the samples would be too many.
    pub sample_every_us: u64,
}

impl RunSpec {
    /// Returns the specification of a cluster, with a default router.
    #[must_use]
    pub fn of(cluster: ClusterSpec) -> Self {
        Self {
            cluster,
            router: RouterSpec::default(),
            limits: LatencyTargets::default(),
            failures: Vec::new(),
            scrape_every_us: 2_000_000,
            sample_every_us: 10_000_000,
        }
    }
}
