//! Admission of one request: at once or through the queue, with any number of holds by its policy.

use std::sync::Arc;
use std::time::Duration;

use placement::{HoldTerms, WorkerPlacement};
use tokio::time::Instant;

use super::admission_request::{AdmissionInput, AdmissionRequest, PoolQueue, PriorityHint};
use super::controller::AdmissionController;
use super::early_rejection as early;
use super::metrics::Admitted;
use super::permit::Permit;
use super::queue_entry::{QueueEntry, QueuePosition, Unserved, hold_end};
use crate::base::reply::Refusal;

/// Admission state of a request.
#[derive(Debug, Default)]
pub(crate) struct AdmissionSession {
    /// `None` until it has to wait.
    request: Option<AdmissionRequest>,
    /// Queue position, from the first wait on.
    turn: Option<QueuePosition>,
    /// Time in the queue that was left when it was sent to a worker, and when that was. It goes on with the next wait.
    left: Option<(Duration, Instant)>,
    entry: Option<QueueEntry>,
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
        let turn = self.turn?;
        // The time at a worker is no time in the queue.
        let resumed = |(left, at): (Duration, Instant)| QueuePosition {
            number: turn.number,
            deadline: hold_end(left, self.deadline),
            since: turn.since + at.elapsed(),
        };
        Some(self.left.map_or(turn, resumed))
    }

    /// Returns the charge that its tenant has for it now.
    pub(crate) fn charged(&self) -> Option<f64> {
        let charge = self.permit.as_ref()?.charged.as_ref();
        charge.map(|charge| charge.share)
    }

    /// Returns `true` while the request has a queue entry.
    pub(crate) fn is_held(&self) -> bool {
        self.entry.is_some()
    }

    /// Takes a permit, or waits until the budget has room.
    pub(crate) async fn enter(&mut self, input: &AdmissionInput<'_>) -> Result<(), Refusal> {
        let queue = &input.queue.controller;
        let request = match queue.pass(|| AdmissionRequest::of(input)) {
            Ok(permit) => {
                if permit.is_some() {
                    queue.metrics.count(Admitted::AtOnce);
                }
                self.permit = permit;
                return Ok(());
            }
            Err(request) => request,
        };
        // A model without workers is refused before any wait.
        if input.workers.serving(input.model).next().is_none() {
            return Ok(());
        }
        let request = self.request.insert(AdmissionRequest {
            runs: early::runs(input),
            ..request
        });
        let (_, wait) = queue.outlook(request.class);
        if let Some(slow) = early::in_queue(input, request, wait) {
            queue.metrics.count(Admitted::TooSlow);
            let after = queue.retry_after(request.class);
            return Err(Refusal::TooSlow { slow, after });
        }
        let mut entry = self.queue_entry(input)?;
        queue.metrics.count(Admitted::AfterWaiting);
        let request = self.request.get_or_insert_with(|| AdmissionRequest::of(input));
        let permit = entry.wait(request).await;
        self.permit = Some(permit.map_err(|why| unserved(input, request, why))?);
        self.entry = Some(entry);
        Ok(())
    }

    /// Waits after a policy's hold until the request is to be re-evaluated. `seen` is as in
    /// `AdmissionController::releases`.
    pub(crate) async fn hold(
        &mut self,
        input: &AdmissionInput<'_>,
        terms: HoldTerms,
        seen: u64,
    ) -> Result<(), Refusal> {
        let mut entry = match self.entry.take() {
            Some(entry) => entry,
            None => self.queue_entry(input)?,
        };
        let request = self.request.get_or_insert_with(|| AdmissionRequest::of(input));
        let held = entry.hold(request, terms, seen, self.permit.take()).await;
        self.permit = held.map_err(|why| unserved(input, request, why))?;
        self.entry = Some(entry);
        Ok(())
    }

    /// Admits a placed request unless its predicted times are too long. A request that is retried after a worker's
    /// failure is not rejected any more.
    pub(crate) fn send(
        &mut self,
        input: &AdmissionInput<'_>,
        placement: &WorkerPlacement,
        is_first: bool,
    ) -> Result<(), Refusal> {
        if let Some(slow) = early::placed(input, placement).filter(|_| is_first) {
            let controller = &input.queue.controller;
            controller.metrics.count(Admitted::TooSlow);
            let class = self
                .request
                .get_or_insert_with(|| AdmissionRequest::of(input))
                .class;
            let after = controller.retry_after(class);
            return Err(Refusal::TooSlow { slow, after });
        }
        self.leave_queue();
        if let Some(permit) = &mut self.permit {
            permit.begin();
        }
        Ok(())
    }

    /// Returns the permit, which is held until the response ends.
    pub(crate) fn into_permit(self) -> Option<Permit> {
        self.permit
    }

    /// Gives up the queue entry of a request that has found a worker.
    fn leave_queue(&mut self) {
        if let Some(entry) = self.entry.take() {
            entry.sent();
            self.left = self.turn.map(|turn| (turn.left(), Instant::now()));
        }
    }

    /// Returns the queue position for a wait that begins now.
    fn position(&mut self, queue: &PoolQueue) -> QueuePosition {
        let turn = self.turn().unwrap_or_else(|| {
            let end = hold_end(queue.timeout, self.deadline);
            queue.controller.turn(end)
        });
        (self.turn, self.left) = (Some(turn), None);
        turn
    }

    /// Takes a queue entry.
    fn queue_entry(&mut self, input: &AdmissionInput<'_>) -> Result<QueueEntry, Refusal> {
        let queue = input.queue;
        let turn = self.position(queue);
        let request = self.request.get_or_insert_with(|| AdmissionRequest::of(input));
        let class = request.class;
        let entered = queue.controller.enter(turn, queue.limit, class);
        entered.map_err(|_| queue_full(&queue.controller, class))
    }
}

impl PriorityHint<'_> {
    /// Rejects a request early if its admission is certain to fail. `is_served`: a worker serves its model.
    pub(crate) fn reject_if_full(
        &self,
        controller: &Arc<AdmissionController>,
        queue_limit: usize,
        is_served: impl FnOnce() -> bool,
    ) -> Result<(), Refusal> {
        if !controller.is_crowded(queue_limit) {
            return Ok(());
        }
        let class = self.class();
        // A request for a model without workers is refused for that reason.
        if controller.may_shed_for(class) || !is_served() {
            return Ok(());
        }
        Err(queue_full(controller, class))
    }
}

fn queue_full(controller: &AdmissionController, class: i32) -> Refusal {
    controller.metrics.count(Admitted::QueueFull);
    Refusal::QueueFull {
        after: controller.retry_after(class),
    }
}

fn unserved(input: &AdmissionInput<'_>, request: &AdmissionRequest, why: Unserved) -> Refusal {
    let controller = &input.queue.controller;
    let after = controller.retry_after(request.class);
    match why {
        Unserved::Timeout => {
            controller.metrics.count(Admitted::TimedOut);
            Refusal::QueueTimeout { after }
        }
        Unserved::Shed => {
            controller.metrics.count(Admitted::Shed);
            Refusal::Shed { after }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::super::tests::{budget, pass, request};
    use super::*;

    /// Puts a request into the queue.
    fn enter(session: &mut AdmissionSession, queue: &PoolQueue) {
        let turn = session.position(queue);
        session.entry = queue.controller.enter(turn, queue.limit, 0).ok();
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_at_a_worker_is_no_time_in_the_queue() {
        let seconds = Duration::from_secs;
        let queue = PoolQueue {
            controller: budget(None, None),
            limit: 1,
            timeout: seconds(30),
            admission: None,
        };
        let left = |session: &AdmissionSession| session.turn().unwrap().left();
        let mut session = AdmissionSession::new(Some(Instant::now() + seconds(60)));
        enter(&mut session, &queue);
        let first = session.turn().unwrap();
        advance(seconds(1)).await;
        session.leave_queue();
        advance(seconds(24)).await;
        assert_eq!(left(&session), seconds(29));
        enter(&mut session, &queue);
        advance(seconds(2)).await;
        assert_eq!(left(&session), seconds(27));
        let again = session.turn().unwrap();
        assert_eq!(
            (again.number, again.since),
            (first.number, first.since + seconds(24))
        );
        session.leave_queue();
        advance(seconds(13)).await;
        assert_eq!(
            left(&session),
            seconds(20),
            "the response must have begun by then"
        );
    }

    #[tokio::test]
    async fn the_queue_ends_no_later_than_the_time_for_the_response() {
        let queue = PoolQueue {
            controller: budget(None, None),
            limit: 1,
            timeout: Duration::from_secs(3_600),
            admission: None,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut session = AdmissionSession::new(Some(deadline));
        enter(&mut session, &queue);
        assert_eq!(session.turn().unwrap().deadline, deadline);
        session.leave_queue();
        assert!(session.turn().unwrap().deadline <= deadline, "at a worker");
    }

    #[tokio::test]
    async fn a_request_is_charged_while_it_has_a_permit_whether_or_not_it_was_in_the_queue() {
        let queue = PoolQueue {
            controller: budget(None, None),
            limit: 1,
            timeout: Duration::from_secs(30),
            admission: None,
        };
        let mut session = AdmissionSession::new(None);
        enter(&mut session, &queue);
        assert!(session.turn().is_some());
        assert_eq!(
            session.charged(),
            None,
            "a release during its decision ends its wait"
        );
        session.permit = pass(&queue.controller, request(0, "tenant", 100));
        assert_eq!(session.charged(), Some(100.0));
    }
}
