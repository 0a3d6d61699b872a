//! Why worker X: which of a pool's policies is asked about which workers, and what is made of the answers.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::{
    Chosen, Decision, DecisionQueries, Offer, Phase, Policy, Rejection, RequestFacts, Role, WorkerId,
};

use crate::call::Call;
use crate::candidates::{Allowed, Candidates, Field, NoCandidate, Roles, Standing};
use crate::context::RequestContext;
use crate::proxy::Proxy;
use crate::queries::CallQueries;
use crate::shadow::Captured;

thread_local! {
    /// Taken for the time of a decision and put back.
    static CANDIDATES: Cell<Candidates> = Cell::default();
}

/// What to do with a request now.
#[derive(Debug)]
pub(crate) enum Step {
    Send(Placement),
    Hold(Pause),
    Reject(Rejection),
}

/// How a request is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    /// Ascending order among the requests held for the pool.
    pub(crate) order: f64,
    /// The policy is asked again by then.
    pub(crate) ask_again: Duration,
    /// The worker it waits for, and what it is there, in the policy's unit.
    pub(crate) waits_for: Option<(WorkerId, u32)>,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    /// The worker that answers the client.
    pub(crate) answers: Seat,
    /// The one that computes the prompt for it, where another does.
    pub(crate) prefills: Option<Seat>,
}

impl Placement {
    /// On one worker, whatever the index says of it.
    pub(crate) fn alone(member: usize) -> Self {
        let answers = Seat {
            member,
            matched: None,
        };
        Self {
            answers,
            prefills: None,
        }
    }

    /// Every worker it names.
    pub(crate) fn seats(&self) -> impl Iterator<Item = Seat> {
        self.prefills.into_iter().chain([self.answers])
    }
}

/// A chosen worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    /// Index into the pool's members.
    pub(crate) member: usize,
    /// Tokens of the prompt the worker holds on any tier, where the index was asked and knows.
    pub(crate) matched: Option<u32>,
}

/// What is to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it, on one worker or two.
    Request,
    /// The decode leg of a prompt that has been computed.
    Decode,
}

/// What was decided about one part.
enum Decided {
    Seat(Seat),
    Step(Step),
}

/// Decides once.
pub(crate) fn decide(
    proxy: &Proxy,
    request: &Arc<RequestContext>,
    part: Part,
    standing: Standing<'_>,
) -> Result<Step, NoCandidate> {
    let allowed = match part {
        Part::Request => request.allowed(),
        Part::Decode => Allowed {
            mixed: false,
            pair: false,
            alone: true,
        },
    };
    let field = Field::find(
        request.pool(),
        (request.seed(), request.served.now()),
        standing.tried,
        allowed,
    )?;
    let mut candidates = CANDIDATES.take();
    let mut deciding = Deciding {
        proxy,
        request,
        standing,
        field,
        candidates: &mut candidates,
    };
    let step = match part {
        Part::Decode => deciding.one(Phase::Decode, field, Asked::Policy).whole(),
        Part::Request if !field.splits => deciding.one(Phase::Mixed, field, Asked::Policy).whole(),
        Part::Request if request.route().is_by_phase() => deciding.by_phase(Asked::Policy),
        Part::Request => deciding.pair(),
    };
    // A request is placed once for its shadows: what it is tried on besides is for want of another.
    if let Step::Send(placement) = &step
        && part == Part::Request
        && standing.tried.is_empty()
    {
        Captured::offer(proxy, request, (field, &candidates), (*placement, standing));
    }
    CANDIDATES.set(candidates);
    Ok(step)
}

impl Decided {
    /// The seat answers the client and does all of it.
    fn whole(self) -> Step {
        match self {
            Self::Seat(answers) => Step::Send(Placement {
                answers,
                prefills: None,
            }),
            Self::Step(step) => step,
        }
    }
}

/// Who is asked about a part.
#[derive(Debug, Clone, Copy)]
enum Asked<'a> {
    /// The policy of the part's phase.
    Policy,
    /// The version of it that was chosen already.
    Chosen(Chosen<'a>),
    /// The fallback.
    Fallback,
}

/// The decisions about one request at one time.
struct Deciding<'a> {
    proxy: &'a Proxy,
    request: &'a Arc<RequestContext>,
    standing: Standing<'a>,
    field: Field,
    candidates: &'a mut Candidates,
}

impl<'a> Deciding<'a> {
    /// Both workers in one call, where the version that decides it can; where it gives no answer, by the fallback one after the
    /// other.
    fn pair(&mut self) -> Step {
        let decider = self.request.decider(Phase::Mixed);
        let alone = self.request.allowed().alone;
        let Some(chosen) = decider.policy.choose(self.proxy.now_us()) else {
            decider.metrics.fallbacks.inc();
            return self.by_phase(Asked::Fallback);
        };
        let policy = &chosen.version().policy;
        if !policy.plan().pairs() {
            return self.by_phase(Asked::Chosen(chosen));
        }
        let decided = self.call(Phase::Mixed, self.field, &**policy, |call, candidates| {
            let roles = std::mem::take(&mut candidates.roles);
            let offer = Offer::Pair { roles: &roles, alone };
            let decision = call.ask_policy(decider, chosen, candidates, offer);
            candidates.roles = roles;
            match decision {
                Decision::Route(route) => Some(Step::Send(Placement {
                    answers: call.seat(candidates, route.row()),
                    prefills: route.prefill().map(|row| call.seat(candidates, row)),
                })),
                Decision::Queue(hold) => Some(Step::Hold(call.pause(hold))),
                Decision::Reject(rejection) => Some(Step::Reject(rejection)),
                Decision::Pass => {
                    decider.metrics.fallbacks.inc();
                    None
                }
            }
        });
        decided.unwrap_or_else(|| self.by_phase(Asked::Fallback))
    }

    /// The prefill worker, then the decode worker. A version that is chosen already decides the first.
    fn by_phase(&mut self, asked: Asked<'a>) -> Step {
        let begins = match self.one(Phase::Prefill, self.field.only(Roles::BEGIN), asked) {
            Decided::Seat(seat) => seat,
            Decided::Step(step) => return step,
        };
        let role = self.request.pool().members[begins.member].worker.spec().role;
        if role == Role::Mixed {
            return Decided::Seat(begins).whole();
        }
        let asked = match asked {
            Asked::Chosen(_) => Asked::Policy,
            asked => asked,
        };
        match self.one(Phase::Decode, self.field.only(Roles::DECODE), asked) {
            Decided::Seat(answers) => Step::Send(Placement {
                answers,
                prefills: Some(begins),
            }),
            Decided::Step(step) => step,
        }
    }

    /// One worker for one part.
    fn one(&mut self, phase: Phase, field: Field, asked: Asked<'a>) -> Decided {
        let decider = self.request.decider(phase);
        let (chosen, is_asked) = match asked {
            Asked::Policy => (decider.policy.choose(self.proxy.now_us()), true),
            Asked::Chosen(chosen) => (Some(chosen), true),
            Asked::Fallback => (None, false),
        };
        let fallback: &dyn Policy = &self.proxy.fallback;
        let policy = chosen.map_or(fallback, |chosen| &*chosen.version().policy);
        self.call(phase, field, policy, |call, candidates| {
            let offer = Offer::One {
                candidates: candidates.members.len(),
            };
            let decision = chosen.map_or(Decision::Pass, |chosen| {
                call.ask_policy(decider, chosen, candidates, offer)
            });
            match decision {
                Decision::Route(route) => Decided::Seat(call.seat(candidates, route.row())),
                Decision::Queue(hold) => Decided::Step(Step::Hold(call.pause(hold))),
                Decision::Reject(rejection) => Decided::Step(Step::Reject(rejection)),
                Decision::Pass => {
                    if is_asked {
                        decider.metrics.fallbacks.inc();
                    }
                    let row = call.ask_fallback(candidates);
                    Decided::Seat(call.seat(candidates, row))
                }
            }
        })
    }

    /// Lists the candidates, lets `ask` ask about them, and gives the buffers back.
    fn call<T>(
        &mut self,
        phase: Phase,
        field: Field,
        policy: &dyn Policy,
        ask: impl FnOnce(&Call<'_>, &mut Candidates) -> T,
    ) -> T {
        let started = Instant::now();
        let request = self.request;
        self.candidates
            .list(request.pool(), request.served.now(), self.standing.tried, field);
        let facts = RequestFacts {
            seq: request.seq,
            run: request.run,
            session: request.session,
            phase,
            attempt: self.standing.attempt,
            now_us: self.proxy.now_us(),
        };
        self.candidates.matches.clear();
        let queries = CallQueries::begin(self.proxy, request, policy.needs_prefix(), self.candidates);
        let queries = Arc::new(queries);
        let call = Call {
            proxy: self.proxy,
            request,
            facts: &facts,
            standing: self.standing,
            started,
            shared: Arc::clone(&queries) as Arc<dyn DecisionQueries>,
            queries: &queries,
        };
        let decided = ask(&call, self.candidates);
        drop(call);
        if let Some(queries) = Arc::into_inner(queries) {
            queries.end(self.candidates);
        }
        decided
    }
}
