//! Who may take a request, and the numbers a policy asked for about them.
//!
//! All buffers are the thread's own and keep their room: nothing is allocated here, and of a whole decision only
//! the one shared value a policy asks its questions of (`queries.rs`), which borrows two of these buffers.

use std::cell::LazyCell;
use std::time::{Duration, Instant};

use kv_index::WorkerMatch;
use routing::{
    CandidateFeature, EngineSaid, FeaturePlan, LoadReading, RequestFeature, Role, WorkerId, hash_number,
};

use crate::admission::{Turn, longest_hold};
use crate::catalog::ServedModel;
use crate::context::RequestContext;
use crate::matches::Matches;
use crate::proxy::Proxy;
use crate::snapshot::{Member, PoolState};

/// Who is asked for in one call, by role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roles(u8);

impl Roles {
    pub(crate) const MIXED: Self = Self::of(Role::Mixed);
    pub(crate) const PREFILL: Self = Self::of(Role::Prefill);
    pub(crate) const DECODE: Self = Self::of(Role::Decode);
    /// Who may compute a prompt: a mixed worker takes the whole request then.
    pub(crate) const BEGIN: Self = Self(Self::PREFILL.0 | Self::MIXED.0);
    pub(crate) const ALL: Self = Self(Self::BEGIN.0 | Self::DECODE.0);

    const fn of(role: Role) -> Self {
        Self(match role {
            Role::Mixed => 1,
            Role::Prefill => 2,
            Role::Decode => 4,
        })
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn with(self, role: Role) -> Self {
        Self(self.0 | Self::of(role).0)
    }
}

/// Who is there for a request, and what can be made of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    /// Whose role is among these.
    pub(crate) roles: Roles,
    /// Whether it can be split between two of them.
    pub(crate) splits: bool,
    /// Those of whom nobody is well: who has just come back counts in full there.
    thin: Roles,
    /// Workers out of service (pending, resting, busy, unhealthy) count, since there are not enough others.
    resting_too: bool,
    /// The request's seed, by which workers that come back are offered.
    seed: u64,
}

/// How well a worker is, for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It is well.
    Well,
    /// It has just come back, and is not offered this request where another of its role is well.
    Returning,
    /// It is out of service: it was never reached, or is kept away from.
    Resting,
}

impl Reach {
    fn of(member: &Member, seed: u64) -> Self {
        if rests(member) {
            Self::Resting
        } else if member.link.admits(seed) {
            Self::Well
        } else {
            Self::Returning
        }
    }
}

/// Who may be given what is to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// One mixed worker.
    pub(crate) mixed: bool,
    /// A prefill and a decode worker.
    pub(crate) pair: bool,
    /// One decode worker.
    pub(crate) alone: bool,
}

impl Field {
    /// Finds the workers that serve the model, were not tried, are in service and not draining, and where they have just come
    /// back, are offered this request, unless nobody of their role is better. Where none is in service, those out of service are
    /// tried rather than none; a decode worker does the whole of a request where neither a pair nor a mixed one is there.
    pub(crate) fn find(
        pool: &PoolState,
        (seed, served): (u64, &ServedModel),
        tried: &[WorkerId],
        allowed: Allowed,
    ) -> Result<Self, NoCandidate> {
        if pool.members.is_empty() {
            return Err(NoCandidate::EmptyPool);
        }
        let mut near = [Roles(0); 3];
        let members = pool.members.iter().enumerate();
        for (_, member) in members.filter(|(at, _)| served.has(*at)) {
            if tried.contains(&member.worker.id()) || member.link.health.is_draining() {
                continue;
            }
            let role = member.worker.spec().role;
            let reach = Reach::of(member, seed);
            for further in &mut near[reach as usize..] {
                *further = further.with(role);
            }
        }
        let all = near[Reach::Resting as usize];
        let none = if served.is_empty() {
            NoCandidate::NotServed
        } else if tried.is_empty() && all == Roles(0) {
            // They are draining.
            NoCandidate::AllTried
        } else if tried.is_empty() && !allowed.pair {
            NoCandidate::NobodyAlone
        } else if tried.is_empty() {
            NoCandidate::OneSided {
                missing: if all.has(Roles::PREFILL) {
                    Role::Decode
                } else {
                    Role::Prefill
                },
            }
        } else {
            NoCandidate::AllTried
        };
        let awake = near[Reach::Returning as usize];
        let thin = Roles(awake.0 & !near[Reach::Well as usize].0);
        let of = |present, resting_too| {
            let field = Self::of(present, allowed)?;
            Some(Self {
                thin,
                resting_too,
                seed,
                ..field
            })
        };
        of(awake, false).or_else(|| of(all, true)).ok_or(none)
    }

    fn of(present: Roles, allowed: Allowed) -> Option<Self> {
        let pair = allowed.pair && present.has(Roles::PREFILL) && present.has(Roles::DECODE);
        let roles = if pair {
            Roles::ALL
        } else if allowed.mixed && present.has(Roles::MIXED) {
            Roles::MIXED
        } else if allowed.alone && present.has(Roles::DECODE) {
            Roles::DECODE
        } else {
            return None;
        };
        Some(Self {
            roles,
            splits: pair,
            thin: Roles(0),
            resting_too: false,
            seed: 0,
        })
    }

    /// The same moment, where only workers of one kind are asked for.
    pub(crate) fn only(self, roles: Roles) -> Self {
        Self { roles, ..self }
    }

    fn takes(self, member: &Member) -> bool {
        let role = Roles::of(member.worker.spec().role);
        let is_near = || {
            self.resting_too
                || match Reach::of(member, self.seed) {
                    Reach::Well => true,
                    Reach::Returning => self.thin.has(role),
                    Reach::Resting => false,
                }
        };
        self.roles.has(role) && !member.link.health.is_draining() && is_near()
    }
}

/// The candidates of one call.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Indices into the pool's members; the rows.
    pub(crate) members: Vec<usize>,
    /// Their ids, row by row; with the queries while a call lasts.
    pub(crate) ids: Vec<WorkerId>,
    /// What each does.
    pub(crate) roles: Vec<Role>,
    /// Room for the queries' matches; after a call, what those were, if the index was asked.
    pub(crate) matches: Matches,
    /// What each had to do when it was listed; empty where it is read when the numbers are laid out.
    pub(crate) loads: Vec<LoadReading>,
    /// Laid out for a policy.
    pub(crate) numbers: Vec<f64>,
}

/// How far a request has come when it is decided.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Standing<'a> {
    /// Decisions before this one.
    pub(crate) attempt: u32,
    /// Workers that are out of the question.
    pub(crate) tried: &'a [WorkerId],
    /// Since it was held first.
    pub(crate) turn: Option<Turn>,
    /// By when its answer must have begun.
    pub(crate) deadline: Option<tokio::time::Instant>,
    /// Whether it has a place in the queue now.
    pub(crate) is_held: bool,
}

/// Why there are no candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoCandidate {
    /// The pool has no workers, which is its state and not the request's fault.
    EmptyPool,
    /// There are workers, but none serves the model.
    NotServed,
    /// Every one that does was tried.
    AllTried,
    /// There are those that do a part of a request, and this one has to be done as a whole.
    NobodyAlone,
    /// There is nobody to do the other part.
    OneSided {
        /// Whose part that is.
        missing: Role,
    },
}

impl Candidates {
    /// Lists who is in the field, row by row: never nobody, since [`Field::find`] saw somebody.
    pub(crate) fn list(&mut self, pool: &PoolState, served: &ServedModel, tried: &[WorkerId], field: Field) {
        self.list_once(pool, served, tried, field);
        if self.ids.is_empty() {
            // They have begun to rest since.
            let resting_too = true;
            self.list_once(pool, served, tried, Field { resting_too, ..field });
        }
    }

    fn list_once(&mut self, pool: &PoolState, served: &ServedModel, tried: &[WorkerId], field: Field) {
        self.members.clear();
        self.ids.clear();
        self.roles.clear();
        for (at, member) in pool.members.iter().enumerate() {
            let id = member.worker.id();
            if served.has(at) && field.takes(member) && !tried.contains(&id) {
                self.members.push(at);
                self.ids.push(id);
                self.roles.push(member.worker.spec().role);
            }
        }
    }

    /// Those of them that do one of these, and their rows here.
    pub(crate) fn only(&self, roles: Roles) -> (Vec<usize>, Self) {
        let is_among = |row: &usize| roles.has(Roles::of(self.roles[*row]));
        let rows: Vec<usize> = (0..self.roles.len()).filter(is_among).collect();
        let only = Self {
            members: rows.iter().map(|row| self.members[*row]).collect(),
            ids: rows.iter().map(|row| self.ids[*row]).collect(),
            roles: rows.iter().map(|row| self.roles[*row]).collect(),
            matches: self.matches.only(&rows),
            loads: rows
                .iter()
                .filter_map(|row| self.loads.get(*row).copied())
                .collect(),
            numbers: Vec::new(),
        };
        (rows, only)
    }

    /// Lays out the numbers of a plan: the request's, then one row a candidate. `matches` are there if the plan
    /// needs them.
    pub(crate) fn lay_out(
        &mut self,
        proxy: &Proxy,
        plan: &FeaturePlan,
        (request, standing): (&RequestContext, Standing<'_>),
        matches: Option<&Matches>,
    ) {
        self.numbers.clear();
        let now = Instant::now();
        let of_request = plan.request().iter().map(|feature| match feature {
            RequestFeature::PrefixBest => matches.and_then(Matches::best).map_or(f64::NAN, f64::from),
            feature => request_number(*feature, request, standing, now),
        });
        self.numbers.extend(of_request);
        let pool = request.pool();
        let live = proxy.live.now();
        let prompt = request.prompt_tokens();
        for (row, at) in self.members.iter().enumerate() {
            let member = &pool.members[*at];
            let worker = &member.worker;
            let load = self.loads.get(row).copied();
            let load = load.unwrap_or_else(|| worker.load().read());
            let found = matches.and_then(|matches| matches.get(row));
            let matched =
                |tokens: fn(&WorkerMatch) -> u32| found.map_or(f64::NAN, |found| tokens(found).into());
            // Five more counters, which few plans have.
            let engine = LazyCell::new(|| worker.load().engine());
            let said = |number: fn(&EngineSaid) -> f64| engine.map_or(f64::NAN, |(said, _)| number(&said));
            for feature in plan.candidate() {
                self.numbers.push(match feature {
                    CandidateFeature::Weight => worker.spec().weight,
                    CandidateFeature::Role => worker.spec().role.number(),
                    CandidateFeature::DpRank => worker.spec().rank.map_or(f64::NAN, |rank| rank.0.into()),
                    CandidateFeature::NameHash => worker.name_hash(),
                    CandidateFeature::AgeMs => millis(member.link.age(now)),
                    CandidateFeature::Failures => member.link.health.failures().into(),
                    CandidateFeature::Requests => load.requests.into(),
                    // The counters are read one after the other: between two of them a first token may come.
                    CandidateFeature::Queued => load.requests.saturating_sub(load.decoding).into(),
                    CandidateFeature::PrefillTokens => load.prefill_tokens as f64,
                    CandidateFeature::Decoding => load.decoding.into(),
                    CandidateFeature::DecodingTokens => load.decoding_tokens as f64,
                    CandidateFeature::PromptTokens => load.prompt_tokens as f64,
                    CandidateFeature::TtftEwmaMs => load.ttft_ewma_ms,
                    CandidateFeature::TtftP90Ms => worker.load().ttft_p90_ms(),
                    CandidateFeature::TbtEwmaMs => worker.load().tbt_ewma_ms(),
                    CandidateFeature::PrefixDevice => matched(|found| found.device_tokens),
                    CandidateFeature::PrefixHost => matched(|found| found.host_tokens),
                    CandidateFeature::PrefixAny => matched(|found| found.any_tokens),
                    CandidateFeature::CacheBlocks if live.contains(worker.id()) => {
                        proxy.index.held_blocks(worker.id()) as f64
                    }
                    CandidateFeature::CostPrefill => {
                        let cached = found.map_or(0, |found| found.any_tokens).min(prompt);
                        worker.load().cost().prefill_ms(prompt - cached, cached)
                    }
                    CandidateFeature::CostToken => worker.load().cost().token_ms(),
                    CandidateFeature::CostTransfer => worker.load().cost().transfer_ms(prompt),
                    CandidateFeature::CostTbt => {
                        let resident = load.prompt_tokens + u64::from(prompt);
                        worker.load().cost().tbt_ms(load.decoding + 1, resident)
                    }
                    CandidateFeature::EngineRunning => said(|said| said.running),
                    CandidateFeature::EngineWaiting => said(|said| said.waiting),
                    CandidateFeature::EngineKvUsage => said(|said| said.kv_usage),
                    CandidateFeature::EngineKvTokens => said(|said| said.kv_tokens),
                    CandidateFeature::EngineAgeMs => {
                        engine.map_or(f64::NAN, |(_, at)| member.link.now_ms().saturating_sub(at) as f64)
                    }
                    CandidateFeature::Label(key) => worker.label_number(key),
                    CandidateFeature::CacheBlocks | CandidateFeature::Unknown => f64::NAN,
                });
            }
        }
    }
}

/// Whether to keep away: it failed, or nobody knows its engine, so that no leg can meet there.
fn rests(member: &Member) -> bool {
    let told = member.bootstrap.as_ref().and_then(|server| server.engines());
    member.link.is_out() || told == Some(0)
}

fn request_number(
    feature: RequestFeature,
    request: &RequestContext,
    standing: Standing<'_>,
    now: Instant,
) -> f64 {
    let pool = request.pool();
    match feature {
        RequestFeature::PromptTokens => request
            .prompt
            .as_ref()
            .map_or(f64::NAN, |prompt| prompt.tokens() as f64),
        RequestFeature::MaxTokens => request.max_tokens.map_or(f64::NAN, |tokens| tokens as f64),
        RequestFeature::BodyBytes => request.body.len() as f64,
        RequestFeature::Priority => request.priority.map_or(f64::NAN, |priority| priority as f64),
        RequestFeature::Stream => u8::from(request.stream).into(),
        RequestFeature::WaitedMs => millis(now.duration_since(request.arrived)),
        RequestFeature::DecodeAlone => u8::from(request.allowed().alone).into(),
        RequestFeature::Tried => standing.tried.len() as f64,
        RequestFeature::HoldLeftMs if standing.is_held || pool.queue.len() < pool.queue_limit => {
            let first = || longest_hold(pool.queue_timeout, standing.deadline);
            millis(standing.turn.map_or_else(first, |turn| turn.left()))
        }
        RequestFeature::PoolQueued => pool.queue.len().saturating_sub(standing.is_held.into()) as f64,
        RequestFeature::PoolWorkers => pool.serving(&request.model).count() as f64,
        RequestFeature::PrefixKey(tokens) => {
            let key = request
                .prompt
                .as_ref()
                .and_then(|prompt| prompt.lock().key(tokens as usize));
            key.map_or(f64::NAN, hash_number)
        }
        RequestFeature::HoldLeftMs | RequestFeature::PrefixBest | RequestFeature::Unknown => f64::NAN,
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Allowed = Allowed {
        mixed: true,
        pair: true,
        alone: true,
    };

    /// Who is asked, and whether the request is split.
    #[track_caller]
    fn check(present: &[Role], allowed: Allowed, expected: Option<(Roles, bool)>) {
        let present = present.iter().fold(Roles(0), |roles, role| roles.with(*role));
        let field = Field::of(present, allowed);
        assert_eq!(field.map(|field| (field.roles, field.splits)), expected);
    }

    #[test]
    fn a_pair_needs_both_and_a_mixed_worker_comes_before_decode_alone() {
        use Role::{Decode, Mixed, Prefill};
        check(&[Prefill, Decode], ANY, Some((Roles::ALL, true)));
        check(&[Prefill, Decode, Mixed], ANY, Some((Roles::ALL, true)));
        check(&[Decode, Mixed], ANY, Some((Roles::MIXED, false)));
        check(&[Prefill, Mixed], ANY, Some((Roles::MIXED, false)));
        check(&[Decode], ANY, Some((Roles::DECODE, false)));
        check(&[Prefill], ANY, None);
        check(&[], ANY, None);
    }

    #[test]
    fn what_is_not_allowed_is_not_there() {
        use Role::{Decode, Mixed, Prefill};
        let whole = Allowed { pair: false, ..ANY };
        check(&[Prefill, Decode, Mixed], whole, Some((Roles::MIXED, false)));
        check(&[Prefill, Decode], whole, Some((Roles::DECODE, false)));
        let never_alone = Allowed { alone: false, ..ANY };
        check(&[Decode], never_alone, None);
        check(&[Prefill, Decode], never_alone, Some((Roles::ALL, true)));
        let leg = Allowed {
            mixed: false,
            pair: false,
            alone: true,
        };
        check(&[Prefill, Decode, Mixed], leg, Some((Roles::DECODE, false)));
        check(&[Prefill, Mixed], leg, None);
    }
}
