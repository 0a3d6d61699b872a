//! Why worker X: which policy is asked about which workers, and what is made of the answers, as the server does it
//! (`host/proxy/src/decide.rs` and `call.rs`). Where a policy has no answer, or none that makes sense, the fallback decides.

use std::sync::Arc;

use routing::{
    Choice, Decision, DecisionInput, DecisionQueries, FaultKind, Hold, LeastLoaded, Offer, Phase, Policy,
    PolicyFault, Rejection, RequestFacts, Role, Verdict, WorkerId, check,
};

use super::columns::{Asked, Sight};
use super::counts::RouterCounts;
use super::queries::CallQueries;
use super::spec::Policies;

/// What to do with a request now.
#[derive(Debug)]
pub(super) enum Step {
    Send(Pair),
    /// Held; the worker that it waits for, and what it is there.
    Hold(Hold, Option<(WorkerId, u32)>),
    Reject(Rejection),
    /// Nobody is there for it.
    Nobody,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    /// The worker that answers.
    pub(super) answers: Seat,
    /// The one that computes the prompt for it, where another does.
    pub(super) prefills: Option<Seat>,
    /// The figure of merit of who decided where the request begins.
    pub(super) score: f64,
}

/// A chosen worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    pub(super) worker: usize,
    /// Tokens of the prompt the worker holds on any tier, where the index was asked and knows.
    pub(super) matched: Option<u32>,
}

/// The decisions about one request at one time.
#[derive(Debug)]
pub(super) struct Deciding<'a> {
    pub(super) sight: &'a Sight,
    pub(super) policies: &'a Policies,
    pub(super) fallback: &'a LeastLoaded,
    pub(super) counts: &'a mut RouterCounts,
    pub(super) asked: Asked<'a>,
    /// But for the phase, which each call has its own of.
    pub(super) facts: RequestFacts,
}

/// Whose role is one of some.
type Roles = fn(Role) -> bool;

const ALL: Roles = |_| true;
const MIXED: Roles = |role| role == Role::Mixed;
const DECODE: Roles = |role| role == Role::Decode;
/// Who may compute a prompt: a mixed worker takes the whole request then.
const BEGIN: Roles = |role| role != Role::Decode;

/// Who is there for a request.
#[derive(Debug, Clone, Copy)]
struct Field {
    shape: Shape,
    /// Resting workers count, since there are not enough others.
    resting_too: bool,
}

/// What can be made of those who are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// It is split, or a mixed worker does all of it.
    Pair,
    /// A mixed worker does all of it.
    Mixed,
    /// A decode worker does.
    Alone,
}

/// One call of a policy.
struct Call {
    facts: RequestFacts,
    /// The workers, row by row.
    rows: Vec<usize>,
    queries: Arc<CallQueries>,
}

/// What was decided about one part.
enum Decided {
    Seat(Seat, f64),
    Step(Step),
}

impl Call {
    fn seat(&self, row: usize) -> Seat {
        let matched = self.queries.asked().and_then(|matches| matches.get(row));
        Seat {
            worker: self.rows[row],
            matched: matched.map(|found| found.any_tokens),
        }
    }
}

impl Decided {
    /// The seat answers and does all of it.
    fn whole(self) -> Step {
        match self {
            Self::Seat(answers, score) => Step::Send(Pair {
                answers,
                prefills: None,
                score,
            }),
            Self::Step(step) => step,
        }
    }
}

impl<'a> Deciding<'a> {
    /// Decides once.
    pub(super) fn decide(mut self) -> Step {
        let Some(field) = self.field() else {
            return Step::Nobody;
        };
        let policies = self.policies;
        let policy = policies.first();
        match (field.shape, policies) {
            (Shape::Mixed, _) => self.one(Phase::Mixed, field, MIXED, Some(policy)).whole(),
            (Shape::Alone, _) => self.one(Phase::Mixed, field, DECODE, Some(policy)).whole(),
            (Shape::Pair, Policies::One(policy)) if policy.plan().pairs() => self.pair(policy, field),
            (Shape::Pair, _) => self.by_phase(field, true),
        }
    }

    /// Decides who writes the answer to a prompt that is computed.
    pub(super) fn decide_answer(mut self) -> Step {
        let shape = Shape::Alone;
        let Some(resting_too) = [false, true]
            .into_iter()
            .find(|resting_too| self.has(DECODE, *resting_too))
        else {
            return Step::Nobody;
        };
        let policy = self.policies.second();
        self.one(Phase::Decode, Field { shape, resting_too }, DECODE, Some(policy))
            .whole()
    }

    /// Looks who is there: was not tried and does not rest. When resting ones are all there are, those are tried rather than none; a
    /// decode worker does the whole of a request where neither a pair nor a mixed one is there.
    fn field(&self) -> Option<Field> {
        let find = |resting_too| {
            let is_there = |roles| self.has(roles, resting_too);
            let shape = if is_there(|role| role == Role::Prefill) && is_there(DECODE) {
                Shape::Pair
            } else if is_there(MIXED) {
                Shape::Mixed
            } else if self.sight.decode_alone && is_there(DECODE) {
                Shape::Alone
            } else {
                return None;
            };
            Some(Field { shape, resting_too })
        };
        find(false).or_else(|| find(true))
    }

    fn has(&self, roles: Roles, resting_too: bool) -> bool {
        let mut workers = self.sight.fleet.workers().iter().enumerate();
        workers.any(|(at, worker)| roles(worker.spec().role) && self.takes(at, resting_too))
    }

    fn takes(&self, worker: usize, resting_too: bool) -> bool {
        let fleet = &self.sight.fleet;
        let is_near = if resting_too {
            fleet.is_there(worker)
        } else {
            fleet.is_awake(worker, self.asked.now_us)
        };
        is_near && !self.asked.standing.tried.contains(&worker)
    }

    /// Lists the candidates of a call, and asks the index for a policy that has a column of it.
    fn call(&self, phase: Phase, field: Field, roles: Roles, policy: &dyn Policy) -> Call {
        let workers = self.sight.fleet.workers();
        let is_candidate = |at: &usize| roles(workers[*at].spec().role) && self.takes(*at, field.resting_too);
        let rows: Vec<usize> = (0..workers.len()).filter(is_candidate).collect();
        let candidates = rows.iter().map(|at| Arc::clone(&workers[*at])).collect();
        let queries = CallQueries::new(self.sight, self.asked.prompt, candidates);
        if policy.needs_prefix() {
            queries.matches();
        }
        Call {
            facts: RequestFacts { phase, ..self.facts },
            rows,
            queries: Arc::new(queries),
        }
    }

    /// Both workers in one call; where that gives no answer, by the fallback one after the other.
    fn pair(&mut self, policy: &'a Arc<dyn Policy>, field: Field) -> Step {
        let call = self.call(Phase::Mixed, field, ALL, &**policy);
        let workers = self.sight.fleet.workers();
        let roles: Vec<Role> = call.rows.iter().map(|at| workers[*at].spec().role).collect();
        let offer = Offer::Pair {
            roles: &roles,
            alone: self.sight.decode_alone,
        };
        match self.ask(&**policy, &call, offer) {
            Decision::Route(route) => Step::Send(Pair {
                answers: call.seat(route.row()),
                prefills: route.prefill().map(|row| call.seat(row)),
                score: route.score(),
            }),
            Decision::Queue(hold) => Step::Hold(hold, hold.awaited(call.queries.ids())),
            Decision::Reject(rejection) => Step::Reject(rejection),
            Decision::Pass => {
                self.counts.fallbacks += 1;
                self.by_phase(field, false)
            }
        }
    }

    /// The prefill worker, then the decode worker; by the policies, or by the fallback.
    fn by_phase(&mut self, field: Field, asks: bool) -> Step {
        let policies = self.policies;
        let policy = |of: &'a Arc<dyn Policy>| asks.then_some(of);
        let (begins, score) = match self.one(Phase::Prefill, field, BEGIN, policy(policies.first())) {
            Decided::Seat(seat, score) => (seat, score),
            Decided::Step(step) => return step,
        };
        if self.sight.fleet.workers()[begins.worker].spec().role == Role::Mixed {
            return Decided::Seat(begins, score).whole();
        }
        match self.one(Phase::Decode, field, DECODE, policy(policies.second())) {
            Decided::Seat(answers, _) => Step::Send(Pair {
                answers,
                prefills: Some(begins),
                score,
            }),
            Decided::Step(step) => step,
        }
    }

    /// One worker for one part. Without a policy, by the fallback.
    fn one(
        &mut self,
        phase: Phase,
        field: Field,
        roles: Roles,
        policy: Option<&'a Arc<dyn Policy>>,
    ) -> Decided {
        let fallback: &dyn Policy = self.fallback;
        let call = self.call(phase, field, roles, policy.map_or(fallback, |policy| &**policy));
        let offer = Offer::One {
            candidates: call.rows.len(),
        };
        let decision = policy.map_or(Decision::Pass, |policy| self.ask(&**policy, &call, offer));
        match decision {
            Decision::Route(route) => Decided::Seat(call.seat(route.row()), route.score()),
            Decision::Queue(hold) => Decided::Step(Step::Hold(hold, hold.awaited(call.queries.ids()))),
            Decision::Reject(rejection) => Decided::Step(Step::Reject(rejection)),
            Decision::Pass => {
                self.counts.fallbacks += u64::from(policy.is_some());
                let choice = self.ask_fallback(&call);
                Decided::Seat(call.seat(choice.row as usize), choice.score)
            }
        }
    }

    /// The policy's checked answer; one that makes no sense, or none at all, is as good as a pass.
    fn ask(&mut self, policy: &dyn Policy, call: &Call, offer: Offer<'_>) -> Decision {
        self.counts.calls += 1;
        let verdict = self.verdict(policy, call);
        let fault = match verdict.map(|verdict| check(verdict, offer)) {
            Ok(Ok(decision)) => return decision,
            Ok(Err(invalid)) => (FaultKind::InvalidVerdict, invalid.to_string()),
            Err(fault) => (fault.kind, fault.to_string()),
        };
        self.counts.fault(fault.0, policy.name(), &fault.1);
        Decision::Pass
    }

    fn ask_fallback(&self, call: &Call) -> Choice {
        match self.verdict(self.fallback, call) {
            Ok(Verdict::Route(choice)) if (choice.row as usize) < call.rows.len() => choice,
            // It routes to a row it was shown; were it ever to fail, the first is as good as any.
            _ => Choice {
                row: 0,
                prefill: None,
                score: f64::NAN,
            },
        }
    }

    fn verdict(&self, policy: &dyn Policy, call: &Call) -> Result<Verdict, PolicyFault> {
        let matches = call.queries.asked();
        let numbers = self.sight.lay_out(policy.plan(), self.asked, &call.rows, matches);
        let shared = Arc::clone(&call.queries) as Arc<dyn DecisionQueries>;
        policy.decide(&DecisionInput {
            request: &call.facts,
            ids: call.queries.ids(),
            numbers: &numbers,
            queries: &shared,
        })
    }
}
