//! Entry of one request in a pool's queue.

use std::sync::Arc;
use std::time::Duration;

use placement::HoldTerms;
use routing::{CapacityEvent, Held, least_pause_us};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::admission_request::AdmissionRequest;
use super::controller::{AdmissionController, WaitKind, WakeReason};
use super::permit::Permit;
use super::releases::SweepDecision;

/// Beginning of a request's wait and the deadline of its waits. When the request enters the queue again, both are later
/// by the time outside the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuePosition {
    pub(super) number: u64,
    pub(super) deadline: Instant,
    pub(super) since: Instant,
}

/// Maximum of consecutive re-evaluations due to releases during an evaluation. Without it, a router that decides more
/// slowly than capacity is freed would re-evaluate the same request for ever.
const MOST_ROUNDS: u8 = 8;

/// Queue entry, kept over all waits of a request. Its drop ends the time in the queue, for whatever reason.
#[derive(Debug)]
pub(super) struct QueueEntry {
    controller: Arc<AdmissionController>,
    turn: QueuePosition,
    since: Instant,
    /// Release for which its policy is called again, and which is passed on afterwards.
    release: Option<CapacityEvent>,
    /// Sweep for which its policy is called again, and which goes on afterwards.
    sweep: Option<SweepDecision>,
    /// Consecutive re-evaluations without a wait.
    rounds: u8,
    /// `true` once another request has its place.
    is_shed: bool,
    /// Kind of the next wait.
    kind: WaitKind,
}

/// Reason why a wait ended without admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unserved {
    /// The time in the queue is used up.
    Timeout,
    /// A more important request has its place.
    Shed,
}

/// Entry in the queue for one wait.
struct QueuedWait<'a> {
    queued: &'a mut QueueEntry,
    woken: oneshot::Receiver<WakeReason>,
}

/// Returns the maximum time in the queue of a request that was not held yet: the pool's limit, or the time left until
/// `deadline`.
pub(crate) fn longest_hold(timeout: Duration, deadline: Option<Instant>) -> Duration {
    // Without a deadline, exactly `timeout`: the simulator has the same number, and policies decide by it.
    let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    deadline.map_or(timeout, |deadline| left(deadline).min(timeout))
}

/// Returns the end of a time in the queue that begins now: after `timeout`, or `deadline` itself if that is earlier.
pub(super) fn hold_end(timeout: Duration, deadline: Option<Instant>) -> Instant {
    let end = Instant::now() + timeout;
    deadline.map_or(end, |deadline| deadline.min(end))
}

impl QueuePosition {
    /// Returns the remaining time in the queue.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl QueueEntry {
    pub(super) fn new(controller: Arc<AdmissionController>, turn: QueuePosition) -> Self {
        Self {
            controller,
            turn,
            since: Instant::now(),
            release: None,
            sweep: None,
            rounds: 0,
            is_shed: false,
            kind: WaitKind::First,
        }
    }

    /// Waits for room in the budget.
    pub(super) async fn wait(&mut self, request: &AdmissionRequest) -> Result<Permit, Unserved> {
        let deadline = self.turn.deadline;
        let Some(woken) = self.controller.enqueue(self.turn, request, None, WaitKind::First) else {
            return Err(Unserved::Timeout);
        };
        self.kind = WaitKind::Again;
        let mut wait = QueuedWait { queued: self, woken };
        wait.queued.controller.admit_ready(None);
        match timeout_at(deadline, &mut wait.woken).await {
            Ok(Ok(wake)) => wait.queued.woken(wake),
            _ => Err(Unserved::Timeout),
        }
    }

    /// Waits until the policy is to be called again: capacity was freed or policies changed and this request is the
    /// next in order, or `reevaluate_after` has passed. A release since `seen` counts too (see
    /// [`AdmissionController::releases`]). The permit is given back meanwhile.
    pub(super) async fn hold(
        &mut self,
        request: &AdmissionRequest,
        terms: HoldTerms,
        seen: u64,
        permit: Option<Permit>,
    ) -> Result<Option<Permit>, Unserved> {
        let permit = self.wait_for_decision(request, terms, seen, permit).await?;
        if self.sweep.is_some() {
            // A sweep may decide the whole queue, one request after the other. The thread polls its sockets in between.
            tokio::task::yield_now().await;
        }
        Ok(permit)
    }

    async fn wait_for_decision(
        &mut self,
        request: &AdmissionRequest,
        terms: HoldTerms,
        seen: u64,
        permit: Option<Permit>,
    ) -> Result<Option<Permit>, Unserved> {
        let now = Instant::now();
        let deadline = self.turn.deadline;
        if now >= deadline {
            return Err(Unserved::Timeout);
        }
        let seen = if self.rounds < MOST_ROUNDS {
            seen
        } else {
            self.controller.releases()
        };
        let held = Held {
            order: terms.order,
            evaluated_at: Some(seen),
            waits_for: terms.waits_for,
        };
        let Some(woken) = self.controller.enqueue(self.turn, request, Some(held), self.kind) else {
            self.rounds = self.rounds.saturating_add(1);
            return Ok(permit);
        };
        self.rounds = 0;
        self.kind = WaitKind::Again;
        let mut wait = QueuedWait { queued: self, woken };
        // The wake-up charges the request again, also if a worker failed it before.
        if let Some(mut permit) = permit {
            permit.refund();
        }
        wait.queued.pass_on();
        let least = Duration::from_micros(least_pause_us(wait.queued.controller.len()));
        let reevaluate_at = now + terms.reevaluate_after.max(least);
        if reevaluate_at < deadline {
            if let Ok(Ok(wake)) = timeout_at(reevaluate_at, &mut wait.woken).await {
                return wait.queued.woken(wake).map(Some);
            }
            // Timers are late by up to a millisecond.
            if Instant::now() >= deadline {
                return Err(Unserved::Timeout);
            }
            wait.queued.controller.reevaluate(wait.queued.turn);
        }
        match timeout_at(deadline, &mut wait.woken).await {
            Ok(Ok(wake)) => wait.queued.woken(wake).map(Some),
            _ => Err(Unserved::Timeout),
        }
    }

    fn woken(&mut self, wake: WakeReason) -> Result<Permit, Unserved> {
        match wake {
            WakeReason::In {
                permit,
                release,
                sweep,
            } => {
                (self.release, self.sweep) = (release, sweep);
                Ok(permit)
            }
            WakeReason::Shed => {
                self.is_shed = true;
                Err(Unserved::Shed)
            }
        }
    }

    /// Records that the request has found a worker.
    pub(super) fn sent(self) {
        self.controller.sent();
    }

    /// Passes the release or the sweep on to the next request in the queue.
    fn pass_on(&mut self) {
        if let Some(release) = self.release.take() {
            self.controller.admit_ready(Some(release));
        }
        drop(self.sweep.take());
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        if !self.is_shed {
            self.controller.leave();
        }
        self.controller
            .metrics
            .waited
            .observe(self.since.elapsed().as_secs_f64());
        // A request that was sent or has left is not re-evaluated. The release may fit as many requests as at first.
        self.release = self.release.map(CapacityEvent::reset);
        self.pass_on();
    }
}

impl Drop for QueuedWait<'_> {
    fn drop(&mut self) {
        let queued = &mut *self.queued;
        if queued.controller.dequeue(queued.turn) {
            return;
        }
        // A wake-up may have arrived during the drop; its permit is given back here.
        if let Ok(wake) = self.woken.try_recv() {
            let _ = queued.woken(wake);
        }
    }
}
