//! Placement of one request in virtual time: the decision, and what is kept of a request that is held.

use std::sync::Arc;

use placement::{
    AttemptState, DecisionContext, EligibleSet, HoldTerms, NoCandidate, PlacementOutcome, PlacementPart,
};

use routing::least_pause_us;

use super::index::TracePrompt;
use super::placement::{Placement, refused};
use super::router_view::RouterView;
use super::single::Router;
use super::state::{ArrivedRequest, PlacedRequest, RequestAttempts};
use crate::outcome::RefusalReason;

impl Router {
    /// Decides about a request. `attempt` is the number of decisions before this one.
    pub(super) fn place_part(
        &mut self,
        now_us: u64,
        arrived: ArrivedRequest<'_>,
        attempt: u32,
        part: PlacementPart,
    ) -> Placement {
        let ArrivedRequest {
            number,
            request,
            arrived_us,
        } = arrived;
        self.catch_up(now_us);
        let mut attempts = self.attempts.remove(&number).unwrap_or_default();
        self.state.waits_no_more(number, attempts.waits_for.take());
        let left_us = self.state.hold_left_us(&attempts, now_us);
        let placement = if attempts.is_held && left_us == 0 {
            refused(503, RefusalReason::QueueTimeout)
        } else {
            let prompt = Arc::new(TracePrompt::of(request));
            let placed = PlacedRequest {
                number,
                request,
                arrived_us,
                attempts: &attempts,
                prompt: &prompt,
                attempt,
                now_us,
            };
            match (self.decide(placed, part), part) {
                (Ok(PlacementOutcome::Dispatch(workers)), PlacementPart::Request) => {
                    self.dispatch(now_us, number, request, &prompt, workers)
                }
                (Ok(PlacementOutcome::Dispatch(workers)), PlacementPart::Decode) => {
                    self.dispatch_answer(now_us, number, request, &prompt, workers)
                }
                (Ok(PlacementOutcome::Hold(terms)), _) => self.hold(number, terms, &mut attempts, left_us),
                (Ok(PlacementOutcome::Reject(rejection)), _) => Placement::Reject {
                    status: rejection.status,
                    retry_after_ms: rejection.retry_after_ms,
                    why: RefusalReason::Policy,
                },
                (Err(_), PlacementPart::Request) => refused(503, RefusalReason::NoWorker),
                (Err(_), PlacementPart::Decode) => Placement::Forget,
            }
        };
        self.settle(now_us, number, &mut attempts, &placement);
        placement
    }

    /// Decides once, and books nothing.
    pub(super) fn decide(
        &mut self,
        placed: PlacedRequest<'_>,
        part: PlacementPart,
    ) -> Result<PlacementOutcome, NoCandidate> {
        let view = RouterView {
            state: &self.state,
            policies: &self.policies,
            fallback: &self.fallback,
            seq: self.seq(placed.number),
            run: self.run,
            placed,
        };
        let state = AttemptState {
            attempt: placed.attempt,
            tried: &placed.attempts.tried,
            is_held: placed.attempts.is_held,
        };
        let mut context = DecisionContext {
            eligible: EligibleSet::find(&view, part, state.tried)?,
            view: &view,
            observer: &mut self.counts,
            state,
            candidates: &mut self.candidates,
        };
        let Ok(outcome) = context.decide(part);
        Ok(outcome)
    }

    /// Holds a request, and its work for the worker that it waits for.
    fn hold(
        &mut self,
        number: usize,
        terms: HoldTerms,
        attempts: &mut RequestAttempts,
        left_us: u64,
    ) -> Placement {
        if !attempts.is_held && self.state.held >= self.state.queue.limit {
            return refused(429, RefusalReason::QueueFull);
        }
        if left_us == 0 {
            return refused(503, RefusalReason::QueueTimeout);
        }
        if let Some((worker, work)) = terms.waits_for {
            attempts.waits_for = Some(worker);
            self.state.waits(number, worker, work, terms.order);
        }
        let reevaluate_after_us = u64::try_from(terms.reevaluate_after.as_micros()).unwrap_or(u64::MAX);
        let held = self.state.held + usize::from(!attempts.is_held);
        Placement::Hold {
            order: terms.order,
            reevaluate_after_us: reevaluate_after_us.max(least_pause_us(held)).min(left_us),
            waits_for: attempts.waits_for,
        }
    }

    /// Keeps the state of the request after the decision.
    fn settle(&mut self, now_us: u64, number: usize, attempts: &mut RequestAttempts, placement: &Placement) {
        let is_held = matches!(placement, Placement::Hold { .. });
        self.state.held += usize::from(is_held);
        self.state.held -= usize::from(attempts.is_held);
        attempts.is_held = is_held;
        match placement {
            Placement::Hold { .. } => {
                self.counts.held += 1;
                attempts.held_since_us.get_or_insert(now_us);
            }
            Placement::Dispatch { .. } => self.counts.dispatched += 1,
            Placement::Forget => {}
            Placement::Reject { .. } => {
                self.counts.rejected += 1;
                return;
            }
        }
        if attempts.held_since_us.is_some() || !attempts.tried.is_empty() {
            self.attempts.insert(number, std::mem::take(attempts));
        }
    }
}
