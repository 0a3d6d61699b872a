//! One request's way into its pool: at once, or through the queue, as often as its policy holds it.

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

/// How far a request has come.
#[derive(Debug, Default)]
pub(crate) struct AdmissionSession {
    /// Known once it has to wait.
    wish: Option<AdmissionRequest>,
    /// Since it waited first.
    turn: Option<QueuePosition>,
    ticket: Option<QueueEntry>,
    permit: Option<Permit>,
    /// By when its answer must have begun.
    deadline: Option<Instant>,
}

impl AdmissionSession {
    /// For a request whose answer must have begun by `deadline`.
    pub(crate) fn new(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            ..Self::default()
        }
    }

    /// Since it waited first.
    pub(crate) fn turn(&self) -> Option<QueuePosition> {
        self.turn
    }

    /// Whether it has a place in the queue now.
    pub(crate) fn is_held(&self) -> bool {
        self.ticket.is_some()
    }

    /// Goes in, and waits for room in the budget where there is none.
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
        // What nobody serves is told so now, not after a wait.
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

    /// Its policy holds it: waits until it is to be asked again. `seen` as in `AdmissionController::releases`.
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

    /// It is to go to these workers, unless that would take too long. A request that goes on after a worker failed is not
    /// refused any more.
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

    /// What it takes of the pool until its answer ends.
    pub(crate) fn into_permit(self) -> Option<Permit> {
        self.permit
    }

    /// A place in the queue.
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
    /// Refuses a request that is sure to be refused at its admission. `is_served`: a worker serves its model.
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
