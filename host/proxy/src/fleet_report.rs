//! The fleet as it is at one moment, for whoever shows it.

use std::sync::Arc;

use routing::{Dialect, Worker};

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
}

/// Whether a worker is sent requests, as far as its answers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Nothing speaks against it.
    Ok,
    /// It failed to answer and is kept away from.
    Resting,
    /// A prefill worker whose bootstrap server has told no engine id: it gets no leg.
    EngineUnknown,
}

impl Health {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Resting => "resting",
            Self::EngineUnknown => "engine-unknown",
        }
    }

    fn of(member: &Member) -> Self {
        let engines = member.bootstrap.as_ref().and_then(|server| server.engines());
        match engines {
            _ if member.link.is_resting() => Self::Resting,
            Some(0) => Self::EngineUnknown,
            _ => Self::Ok,
        }
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
    };
    PoolReport {
        name: pool.name.clone(),
        dialect: pool.pd.as_ref().map(|pd| pd.spec.dialect),
        queued: pool.queue.len(),
        workers: pool.members.iter().map(worker).collect(),
    }
}
