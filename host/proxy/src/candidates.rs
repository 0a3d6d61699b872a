//! Who may take a request, and the numbers a policy asked for about them.
//!
//! All buffers are the thread's own and keep their room: nothing is allocated here, and of a whole decision only
//! the one shared value a policy asks its questions of (`queries.rs`), which borrows two of these buffers.

use std::time::Instant;

use kv_index::WorkerMatch;
use routing::{CandidateFeature, FeaturePlan, RequestFeature, Role, WorkerId};

use crate::context::RequestContext;
use crate::matches::Matches;
use crate::proxy::Proxy;
use crate::snapshot::{Member, PoolState};

/// The candidates of one call.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Indices into the pool's members; the rows.
    pub(crate) members: Vec<usize>,
    /// Their ids, row by row; with the queries while a call lasts.
    pub(crate) ids: Vec<WorkerId>,
    /// Room for the queries' matches.
    pub(crate) matches: Matches,
    /// Laid out for a policy.
    pub(crate) numbers: Vec<f64>,
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
}

impl Candidates {
    /// Finds who is eligible: serves the model, was not tried, is not resting. When all are resting, all are
    /// tried rather than none.
    pub(crate) fn find(
        &mut self,
        pool: &PoolState,
        model: &str,
        tried: &[WorkerId],
    ) -> Result<(), NoCandidate> {
        self.members.clear();
        self.ids.clear();
        if pool.members.is_empty() {
            return Err(NoCandidate::EmptyPool);
        }
        let mut served = false;
        for resting_too in [false, true] {
            for (at, member) in pool.members.iter().enumerate() {
                let id = member.worker.id();
                if !serves(member, model) {
                    continue;
                }
                served = true;
                if tried.contains(&id) || (!resting_too && member.link.is_resting()) {
                    continue;
                }
                self.members.push(at);
                self.ids.push(id);
            }
            if !self.ids.is_empty() {
                return Ok(());
            }
        }
        Err(if served {
            NoCandidate::AllTried
        } else {
            NoCandidate::NotServed
        })
    }

    /// Lays out the numbers of a plan: the request's, then one row a candidate. `matches` are there if the plan
    /// needs them.
    pub(crate) fn lay_out(
        &mut self,
        proxy: &Proxy,
        plan: &FeaturePlan,
        request: &RequestContext,
        matches: Option<&Matches>,
    ) {
        self.numbers.clear();
        let now = Instant::now();
        let of_request = plan.request().iter();
        self.numbers
            .extend(of_request.map(|feature| request_number(*feature, request, now)));
        let pool = request.pool();
        let live = proxy.live.now();
        for (row, at) in self.members.iter().enumerate() {
            let member = &pool.members[*at];
            let worker = &member.worker;
            let load = worker.load().read();
            let found = matches.and_then(|matches| matches.get(row));
            let matched =
                |tokens: fn(&WorkerMatch) -> u32| found.map_or(f64::NAN, |found| tokens(found).into());
            for feature in plan.candidate() {
                self.numbers.push(match feature {
                    CandidateFeature::Weight => worker.spec().weight,
                    CandidateFeature::Role => worker.spec().role.number(),
                    CandidateFeature::Requests => load.requests.into(),
                    CandidateFeature::PrefillTokens => load.prefill_tokens as f64,
                    CandidateFeature::Decoding => load.decoding.into(),
                    CandidateFeature::PromptTokens => load.prompt_tokens as f64,
                    CandidateFeature::TtftEwmaMs => load.ttft_ewma_ms,
                    CandidateFeature::PrefixDevice => matched(|found| found.device_tokens),
                    CandidateFeature::PrefixHost => matched(|found| found.host_tokens),
                    CandidateFeature::PrefixAny => matched(|found| found.any_tokens),
                    CandidateFeature::CacheBlocks if live.contains(worker.id()) => {
                        proxy.index.held_blocks(worker.id()) as f64
                    }
                    CandidateFeature::Label(key) => worker.label_number(key),
                    CandidateFeature::CacheBlocks | CandidateFeature::Unknown => f64::NAN,
                });
            }
        }
    }
}

fn serves(member: &Member, model: &str) -> bool {
    // Until pools can be disaggregated, a request needs one worker that does all of it.
    member.worker.spec().role == Role::Mixed && member.worker.serves(model)
}

fn request_number(feature: RequestFeature, request: &RequestContext, now: Instant) -> f64 {
    match feature {
        RequestFeature::PromptTokens => request
            .prompt
            .as_ref()
            .map_or(f64::NAN, |prompt| prompt.tokens() as f64),
        RequestFeature::MaxTokens => request.max_tokens.map_or(f64::NAN, |tokens| tokens as f64),
        RequestFeature::BodyBytes => request.body.len() as f64,
        RequestFeature::Priority => request.priority.map_or(f64::NAN, |priority| priority as f64),
        RequestFeature::Stream => u8::from(request.stream).into(),
        RequestFeature::WaitedMs => now.duration_since(request.arrived).as_secs_f64() * 1e3,
        RequestFeature::Unknown => f64::NAN,
    }
}
