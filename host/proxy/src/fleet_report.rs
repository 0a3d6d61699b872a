//! The fleet as it is at one moment, for whoever shows it.

use std::sync::Arc;

use routing::{Dialect, EngineSaid, Worker};

use crate::admission::BudgetReport;
use crate::health::Stance;
use crate::snapshot::{Member, PoolState, Snapshot};

/// A pool in force.
#[derive(Debug)]
pub struct PoolReport {
    /// Its name.
    pub name: Box<str>,
    /// What its workers speak; none where requests are not split.
    pub dialect: Option<Dialect>,
    /// Requests held in its queue.
    pub queued: usize,
    /// How much it has under way, where that is limited.
    pub budget: Option<BudgetReport>,
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
    /// What its engine said last of its own load, and how many milliseconds ago.
    pub engine: Option<(EngineSaid, u64)>,
}

/// Whether a worker is sent requests, as far as its answers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
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
            Self::Ok => "ok",
            Self::Returning => "returning",
            Self::Resting => "resting",
            Self::Busy => "busy",
            Self::Unhealthy => "unhealthy",
            Self::Draining => "draining",
            Self::EngineUnknown => "engine-unknown",
        }
    }

    fn of(member: &Member) -> Self {
        let engines = member.bootstrap.as_ref().and_then(|server| server.engines());
        match (member.link.stance(), engines) {
            _ if member.link.health.is_draining() => Self::Draining,
            (Stance::Resting, _) => Self::Resting,
            (Stance::Busy, _) => Self::Busy,
            (Stance::Unhealthy, _) => Self::Unhealthy,
            (_, Some(0)) => Self::EngineUnknown,
            (Stance::Returning, _) => Self::Returning,
            (Stance::Serving, _) => Self::Ok,
        }
    }

    /// Whether it is sent requests while there are others.
    #[must_use]
    pub fn is_in_service(self) -> bool {
        matches!(self, Self::Ok | Self::Returning)
    }
}

impl Snapshot {
    /// Its pools and their workers as they are now.
    #[must_use]
    pub fn report(&self) -> Vec<PoolReport> {
        self.pools.iter().map(|pool| report(pool)).collect()
    }
}

fn report(pool: &PoolState) -> PoolReport {
    let worker = |member: &Member| WorkerReport {
        worker: Arc::clone(&member.worker),
        health: Health::of(member),
        engine: member
            .worker
            .load()
            .engine()
            .map(|(said, at)| (said, member.link.now_ms().saturating_sub(at))),
    };
    PoolReport {
        name: pool.name.clone(),
        dialect: pool.pd.as_ref().map(|pd| pd.spec.dialect),
        queued: pool.queue.len(),
        budget: BudgetReport::of(pool),
        workers: pool.members.iter().map(worker).collect(),
    }
}
