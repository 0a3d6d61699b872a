//! A request is decided: what is asked, and what of it is kept where it is held.

use std::sync::Arc;

use routing::{Hold, Phase, RequestFacts, WorkerId};

use super::columns::{Asked, Standing};
use super::place::{Deciding, Step};
use super::placement::{Placement, Refusal, refused};
use super::single::{Router, session_hash};
use super::view::AskedPrompt;
use crate::request::Request;

/// What is to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it, on one worker or two.
    Request,
    /// The answer to a prompt that has been computed.
    Answer,
}

impl Router {
    /// Decides about a request by its place in the trace, that was decided so often before.
    pub(super) fn place_part(
        &mut self,
        now_us: u64,
        (number, request, attempt): (usize, &Request, u32),
        part: Part,
    ) -> Placement {
        self.catch_up(now_us);
        let mut standing = self.standings.remove(&number).unwrap_or_default();
        self.sight.waits_no_more(number, standing.waits_for.take());
        let left_us = self.hold_left_us(&standing, now_us);
        let placement = if standing.is_held && left_us == 0 {
            refused(503, Refusal::QueueTimeout)
        } else {
            let prompt = Arc::new(AskedPrompt::of(request));
            let facts = RequestFacts {
                seq: self.seq(number),
                run: self.run,
                session: request.session.map(session_hash),
                phase: Phase::Mixed,
                attempt,
                now_us,
            };
            let asked = Asked {
                number,
                request,
                standing: &standing,
                prompt: &prompt,
                now_us,
            };
            match (self.decide(asked, facts, part), part) {
                (Step::Send(pair), Part::Request) => self.dispatch(now_us, number, request, (&prompt, pair)),
                (Step::Send(pair), Part::Answer) => {
                    self.dispatch_answer(now_us, number, request, (&prompt, pair))
                }
                (Step::Hold(hold, waits_for), _) => {
                    self.hold(number, (hold, waits_for), &mut standing, left_us)
                }
                (Step::Reject(rejection), _) => Placement::Reject {
                    status: rejection.status,
                    retry_after_ms: rejection.retry_after_ms,
                    why: Refusal::Policy,
                },
                (Step::Nobody, Part::Request) => refused(503, Refusal::NoWorker),
                (Step::Nobody, Part::Answer) => Placement::Forget,
            }
        };
        self.settle(now_us, number, &mut standing, &placement);
        placement
    }

    fn decide(&mut self, asked: Asked<'_>, facts: RequestFacts, part: Part) -> Step {
        let deciding = Deciding {
            sight: &self.sight,
            policies: &self.policies,
            fallback: &self.fallback,
            counts: &mut self.counts,
            asked,
            facts,
        };
        match part {
            Part::Request => deciding.decide(),
            Part::Answer => deciding.decide_answer(),
        }
    }

    fn hold_left_us(&self, standing: &Standing, now_us: u64) -> u64 {
        let held_us = standing.held_since_us.map_or(0, |since_us| now_us - since_us);
        self.sight.queue.timeout_us.saturating_sub(held_us)
    }

    /// Holds a request, and its work for the worker that it waits for.
    fn hold(
        &mut self,
        number: usize,
        (hold, waits_for): (Hold, Option<(WorkerId, u32)>),
        standing: &mut Standing,
        left_us: u64,
    ) -> Placement {
        if !standing.is_held && self.sight.held >= self.sight.queue.limit {
            return refused(429, Refusal::QueueFull);
        }
        if left_us == 0 {
            return refused(503, Refusal::QueueTimeout);
        }
        if let Some((worker, work)) = waits_for {
            standing.waits_for = Some(worker);
            self.sight.waits(number, worker, work);
        }
        Placement::Hold {
            order: hold.order,
            ask_again_us: (u64::from(hold.ask_again_ms) * 1_000).min(left_us),
            waits_for: standing.waits_for,
        }
    }

    /// Keeps where the request stands now.
    fn settle(&mut self, now_us: u64, number: usize, standing: &mut Standing, placement: &Placement) {
        let is_held = matches!(placement, Placement::Hold { .. });
        self.sight.held += usize::from(is_held);
        self.sight.held -= usize::from(standing.is_held);
        standing.is_held = is_held;
        match placement {
            Placement::Hold { .. } => {
                self.counts.held += 1;
                standing.held_since_us.get_or_insert(now_us);
            }
            Placement::Dispatch { .. } => self.counts.dispatched += 1,
            Placement::Forget => {}
            Placement::Reject { .. } => {
                self.counts.rejected += 1;
                return;
            }
        }
        if standing.held_since_us.is_some() || !standing.tried.is_empty() {
            self.standings.insert(number, std::mem::take(standing));
        }
    }
}
