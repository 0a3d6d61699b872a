//! Admission of one request: at once or through the queue, with any number of holds by its policy.

use placement::{HoldTerms, WorkerPlacement};
use tokio::time::Instant;

use super::early;
use super::gate::AdmissionController;
use super::metrics::Admitted;
use super::permit::Permit;
use super::ticket::{QueueEntry, QueuePosition, Unserved, longest_hold};
use super::wish::{AdmissionRequest, PriorityHint};
use crate::base::reply::Refusal;
use crate::request::context::RequestContext;

/// Admission state of a request.
#[derive(Debug, Default)]
pub(crate) struct AdmissionSession {
    /// `None` until it has to wait.
    wish: Option<AdmissionRequest>,
    /// Queue position, from the first wait on.
    turn: Option<QueuePosition>,
    ticket: Option<QueueEntry>,
    permit: Option<Permit>,
    /// Time by which its response must have begun.
    deadline: Option<Instant>,
}

impl AdmissionSession {
    /// Creates the state of a request whose response must have begun by `deadline`.
    pub(crate) fn new(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            ..Self::default()
        }
    }

    /// Returns the queue position, from the first wait on.
    pub(crate) fn turn(&self) -> Option<QueuePosition> {
        self.turn
    }

    /// Returns `true` while the request has a queue entry.
    pub(crate) fn is_held(&self) -> bool {
        self.ticket.is_some()
    }

    /// Takes a permit, or waits until the budget has room.
    pub(crate) async fn enter(&mut self, request: &RequestContext) -> Result<(), Refusal> {
        let pool = request.pool();
        let wish = match pool.queue.pass(|| AdmissionRequest::of(request)) {
            Ok(permit) => {
                if permit.is_some() {
                    pool.queue.metrics.count(Admitted::AtOnce);
                }
                self.permit = permit;
                return Ok(());
            }
            Err(wish) => wish,
        };
        // A model without workers is refused before any wait.
        if pool.workers.serving(&request.model).next().is_none() {
            return Ok(());
        }
        let wish = self.wish.insert(AdmissionRequest {
            runs: early::runs(request),
            ..wish
        });
        let (_, wait) = pool.queue.outlook(wish.class);
        if let Some(slow) = early::in_queue(request, wish, wait) {
            pool.queue.metrics.count(Admitted::TooSlow);
            let after = pool.queue.retry_after(wish.class);
            return Err(Refusal::TooSlow { slow, after });
        }
        let mut ticket = self.ticket(request)?;
        pool.queue.metrics.count(Admitted::AfterWaiting);
        let wish = self.wish.get_or_insert_with(|| AdmissionRequest::of(request));
        let permit = ticket.wait(wish).await;
        self.permit = Some(permit.map_err(|why| unserved(request, wish, why))?);
        self.ticket = Some(ticket);
        Ok(())
    }

    /// Waits after a policy's hold until the request is to be re-evaluated. `seen` is as in
    /// `AdmissionController::releases`.
    pub(crate) async fn hold(
        &mut self,
        request: &RequestContext,
        terms: HoldTerms,
        seen: u64,
    ) -> Result<(), Refusal> {
        let mut ticket = match self.ticket.take() {
            Some(ticket) => ticket,
            None => self.ticket(request)?,
        };
        let wish = self.wish.get_or_insert_with(|| AdmissionRequest::of(request));
        let held = ticket.hold(wish, terms, seen, self.permit.take()).await;
        self.permit = held.map_err(|why| unserved(request, wish, why))?;
        self.ticket = Some(ticket);
        Ok(())
    }

    /// Admits a placed request unless its predicted times are too long. A request that is retried after a worker's
    /// failure is not rejected any more.
    pub(crate) fn send(
        &mut self,
        request: &RequestContext,
        placement: &WorkerPlacement,
        is_first: bool,
    ) -> Result<(), Refusal> {
        if let Some(slow) = early::placed(request, placement).filter(|_| is_first) {
            let gate = &request.pool().queue;
            gate.metrics.count(Admitted::TooSlow);
            let class = self
                .wish
                .get_or_insert_with(|| AdmissionRequest::of(request))
                .class;
            let after = gate.retry_after(class);
            return Err(Refusal::TooSlow { slow, after });
        }
        if let Some(ticket) = self.ticket.take() {
            ticket.sent();
        }
        if let Some(permit) = &mut self.permit {
            permit.begin();
        }
        Ok(())
    }

    /// Returns the permit, which is held until the response ends.
    pub(crate) fn into_permit(self) -> Option<Permit> {
        self.permit
    }

    /// Takes a queue entry.
    fn ticket(&mut self, request: &RequestContext) -> Result<QueueEntry, Refusal> {
        let pool = request.pool();
        let turn = *self.turn.get_or_insert_with(|| {
            let longest = longest_hold(pool.queue_timeout, self.deadline);
            pool.queue.turn(Instant::now() + longest)
        });
        let wish = self.wish.get_or_insert_with(|| AdmissionRequest::of(request));
        let class = wish.class;
        let entered = pool.queue.enter(turn, pool.queue_limit, class);
        entered.map_err(|_| queue_full(&pool.queue, class))
    }
}

impl PriorityHint<'_> {
    /// Rejects a request early if its admission is certain to fail. `is_served`: a worker serves its model.
    pub(crate) fn reject_if_full(
        &self,
        gate: &AdmissionController,
        queue_limit: usize,
        is_served: impl FnOnce() -> bool,
    ) -> Result<(), Refusal> {
        if !gate.is_crowded(queue_limit) {
            return Ok(());
        }
        let class = self.class();
        // A request for a model without workers is refused for that reason.
        if gate.may_shed_for(class) || !is_served() {
            return Ok(());
        }
        Err(queue_full(gate, class))
    }
}

fn queue_full(gate: &AdmissionController, class: i32) -> Refusal {
    gate.metrics.count(Admitted::QueueFull);
    Refusal::QueueFull {
        after: gate.retry_after(class),
    }
}

fn unserved(request: &RequestContext, wish: &AdmissionRequest, why: Unserved) -> Refusal {
    let gate = &request.pool().queue;
    let after = gate.retry_after(wish.class);
    match why {
        Unserved::Timeout => {
            gate.metrics.count(Admitted::TimedOut);
            Refusal::QueueTimeout { after }
        }
        Unserved::Shed => {
            gate.metrics.count(Admitted::Shed);
            Refusal::Shed { after }
        }
    }
}
