//! State of a simulated router: workers, caches in its index, prices, the queue, and the requests'
//! attempts.

use std::sync::{Arc, Mutex, PoisonError};

use routing::{HeldSummary, WaitersByWorker, WorkerId, WorkerWaiter};

use super::backlog::Backlog;
use super::fleet::SimFleet;
use super::index::{IndexView, TracePrompt};
use super::prices::Prices;
use super::spec::QueueSpec;
use crate::request::Request;

/// State that a decision reads, without the request.
#[derive(Debug)]
pub(super) struct RouterState {
    pub(super) fleet: SimFleet,
    pub(super) index: IndexView,
    pub(super) prices: Prices,
    /// Backlog of each worker; kept where the prices are given.
    pub(super) backlogs: Vec<Backlog>,
    pub(super) queue: QueueSpec,
    /// Number of requests that are held.
    pub(super) held: usize,
    /// Number of requests that other routers hold, as far as they share it.
    pub(super) held_elsewhere: usize,
    /// The workers that they wait for. Shared with the queries of a call.
    pub(super) waiters: Arc<Mutex<WaitersByWorker>>,
    pub(super) decode_alone: bool,
}

/// State of a request with regard to earlier decisions.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestAttempts {
    /// Workers that failed at it.
    pub(super) tried: Vec<WorkerId>,
    /// Time when it was held first.
    pub(super) held_since_us: Option<u64>,
    /// Set if the request is held until this decision.
    pub(super) is_held: bool,
    /// The worker that it waits for.
    pub(super) waits_for: Option<WorkerId>,
}

/// A request that has arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrivedRequest<'a> {
    /// Place in the trace.
    pub(crate) number: usize,
    pub(crate) request: &'a Request,
    /// Time of the arrival in the run. A later turn may arrive before or after its recorded time.
    pub(crate) arrived_us: u64,
}

/// A request at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedRequest<'a> {
    /// Place in the trace.
    pub(super) number: usize,
    pub(super) request: &'a Request,
    pub(super) arrived_us: u64,
    pub(super) prompt: &'a Arc<TracePrompt>,
    pub(super) attempts: &'a RequestAttempts,
    /// Number of decisions before this one.
    pub(super) attempt: u32,
    pub(super) now_us: u64,
}

impl RouterState {
    /// Returns for how much longer a request may be held.
    pub(super) fn hold_left_us(&self, attempts: &RequestAttempts, now_us: u64) -> u64 {
        let held_us = attempts.held_since_us.map_or(0, |since_us| now_us - since_us);
        self.queue.timeout_us.saturating_sub(held_us)
    }

    /// Records that a held request waits for a worker, with its work there and its policy's order.
    pub(super) fn waits(&self, number: usize, worker: WorkerId, work: u32, order: f64) {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let number = number as u64;
        // The requests of a trace are of one class and no tenant.
        let waiter = WorkerWaiter {
            number,
            work,
            order,
            ..WorkerWaiter::default()
        };
        waiters.insert(worker, waiter);
    }

    /// Calls `visit` with each worker that held requests wait for, and their summary.
    pub(super) fn summarize_waiters(&self, visit: impl FnMut(WorkerId, &HeldSummary)) {
        let waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        waiters.summarize(visit);
    }

    /// Removes a request from those that wait for a worker.
    pub(super) fn waits_no_more(&self, number: usize, waits_for: Option<WorkerId>) {
        if let Some(worker) = waits_for {
            let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            waiters.remove(worker, number as u64);
        }
    }
}
