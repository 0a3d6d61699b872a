//! The numbers a policy asked for. Each means what it means in the server (`host/proxy/src/candidates.rs`); NaN where a simulation
//! has nothing that it could mean.

use std::cell::LazyCell;
use std::sync::{Arc, Mutex, PoisonError};

use kv_index::WorkerMatch;
use routing::{
    Aims, CandidateFeature, EngineSaid, FeaturePlan, LoadReading, RequestFeature, Role, Worker, WorkerId,
    hash_number,
};

use super::backlog::Backlog;
use super::fleet::SimFleet;
use super::prices::{Lengths, Prices};
use super::spec::QueueSpec;
use super::view::{AskedPrompt, IndexView, Matches};
use crate::request::Request;

/// Bytes of a body for a token of its prompt: where tokens are not known, the server takes a quarter of the one for the other.
const BYTES_PER_TOKEN: f64 = 4.0;

/// Everything a decision looks at but the request.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) fleet: SimFleet,
    pub(super) view: IndexView,
    pub(super) prices: Prices,
    /// Of each worker; kept where the prices are told.
    pub(super) backlogs: Vec<Backlog>,
    pub(super) queue: QueueSpec,
    /// Requests that are held.
    pub(super) held: usize,
    /// Whom they wait for. Shared with the questions of a call.
    pub(super) aims: Arc<Mutex<Aims>>,
    pub(super) decode_alone: bool,
}

/// How far a request has come when it is decided.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    /// Workers it was tried on in vain.
    pub(super) tried: Vec<usize>,
    /// When it was held first.
    pub(super) held_since_us: Option<u64>,
    /// Whether it is held until this decision.
    pub(super) is_held: bool,
    /// The worker that it waits for.
    pub(super) waits_for: Option<WorkerId>,
}

/// A request at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Its place in the trace.
    pub(super) number: usize,
    pub(super) request: &'a Request,
    pub(super) prompt: &'a Arc<AskedPrompt>,
    pub(super) standing: &'a Standing,
    pub(super) now_us: u64,
}

impl Sight {
    /// Lays out the numbers of a plan: the request's, then one row a candidate. `matches` are there if the index was asked.
    pub(super) fn lay_out(
        &self,
        plan: &FeaturePlan,
        asked: Asked<'_>,
        rows: &[usize],
        matches: Option<&Matches>,
    ) -> Vec<f64> {
        let best = matches.and_then(Matches::best);
        let width = plan.candidate().len();
        let mut numbers = Vec::with_capacity(plan.request().len() + rows.len() * width);
        let of_request = plan.request().iter();
        numbers.extend(of_request.map(|feature| self.request_number(*feature, asked, best)));
        let source = matches.and_then(|matches| self.source(rows, matches));
        for (row, &worker) in rows.iter().enumerate() {
            let candidate = Candidate {
                sight: self,
                asked,
                at: worker,
                worker: &self.fleet.workers()[worker],
                load: self.fleet.workers()[worker].load().read(),
                found: matches.and_then(|matches| matches.get(row)),
                source,
            };
            candidate.lay_out(plan, &mut numbers);
        }
        numbers
    }

    /// A held request waits for that worker, where it is so much work.
    pub(super) fn waits(&self, number: usize, worker: WorkerId, work: u32) {
        let mut aims = self.aims.lock().unwrap_or_else(PoisonError::into_inner);
        aims.insert(worker, number as u64, work);
    }

    pub(super) fn waits_no_more(&self, number: usize, waits_for: Option<WorkerId>) {
        if let Some(worker) = waits_for {
            let mut aims = self.aims.lock().unwrap_or_else(PoisonError::into_inner);
            aims.remove(worker, number as u64);
        }
    }

    /// The longest match of those that others may fetch from.
    fn source(&self, rows: &[usize], matches: &Matches) -> Option<u32> {
        let workers = self.fleet.workers();
        let rows = rows.iter().enumerate();
        let sources = rows.filter(|(_, at)| workers[**at].spec().role != Role::Decode);
        let held = sources.filter_map(|(row, _)| matches.get(row));
        held.map(|found| found.any_tokens).max()
    }

    /// Milliseconds that a request may still be held.
    fn hold_left_ms(&self, asked: Asked<'_>) -> f64 {
        let held_us = asked
            .standing
            .held_since_us
            .map_or(0, |since| asked.now_us - since);
        millis(self.queue.timeout_us.saturating_sub(held_us))
    }

    fn request_number(&self, feature: RequestFeature, asked: Asked<'_>, best: Option<u32>) -> f64 {
        let Asked {
            request, standing, ..
        } = asked;
        match feature {
            RequestFeature::PromptTokens => request.prompt_tokens.into(),
            RequestFeature::BodyBytes => f64::from(request.prompt_tokens) * BYTES_PER_TOKEN,
            RequestFeature::Stream => 1.0,
            RequestFeature::WaitedMs => millis(asked.now_us.saturating_sub(request.at_us)),
            RequestFeature::DecodeAlone => u8::from(self.decode_alone).into(),
            RequestFeature::Tried => standing.tried.len() as f64,
            RequestFeature::HoldLeftMs if standing.is_held || self.held < self.queue.limit => {
                self.hold_left_ms(asked)
            }
            RequestFeature::PrefixBest => best.map_or(f64::NAN, f64::from),
            RequestFeature::PrefixKey(tokens) => {
                let key = self.view.reader().key(asked.prompt, tokens);
                key.map_or(f64::NAN, hash_number)
            }
            RequestFeature::PoolQueued => self.held.saturating_sub(standing.is_held.into()) as f64,
            RequestFeature::PoolWorkers => self.fleet.workers().len() as f64,
            // A trace does not tell what its clients allowed or asked for.
            RequestFeature::MaxTokens
            | RequestFeature::Priority
            | RequestFeature::HoldLeftMs
            | RequestFeature::Unknown => f64::NAN,
        }
    }
}

/// One row.
struct Candidate<'a> {
    sight: &'a Sight,
    asked: Asked<'a>,
    at: usize,
    worker: &'a Worker,
    load: LoadReading,
    found: Option<&'a WorkerMatch>,
    /// The longest match that could be fetched.
    source: Option<u32>,
}

impl Candidate<'_> {
    fn lay_out(&self, plan: &FeaturePlan, numbers: &mut Vec<f64>) {
        let Self { worker, load, .. } = self;
        let fleet = &self.sight.fleet;
        let now_us = self.asked.now_us;
        let matched =
            |tokens: fn(&WorkerMatch) -> u32| self.found.map_or(f64::NAN, |found| tokens(found).into());
        let engine = LazyCell::new(|| worker.load().engine());
        let said = |number: fn(&EngineSaid) -> f64| engine.map_or(f64::NAN, |(said, _)| number(&said));
        for feature in plan.candidate() {
            numbers.push(match feature {
                CandidateFeature::Weight => worker.spec().weight,
                CandidateFeature::Role => worker.spec().role.number(),
                CandidateFeature::DpRank => worker.spec().rank.map_or(f64::NAN, |rank| rank.0.into()),
                CandidateFeature::NameHash => worker.name_hash(),
                CandidateFeature::AgeMs => fleet.age_ms(self.at, now_us),
                CandidateFeature::Failures => fleet.failures(self.at).into(),
                CandidateFeature::Requests => load.requests.into(),
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
                CandidateFeature::CacheBlocks => {
                    let held = self.sight.view.reader().held_blocks(worker.id());
                    held.map_or(f64::NAN, |blocks| blocks as f64)
                }
                CandidateFeature::CostPrefill => self.prefill_ms(),
                CandidateFeature::CostToken => self.token_ms(),
                CandidateFeature::CostTransfer => self.transfer_ms(),
                CandidateFeature::CostTbt => self.tbt_ms(),
                CandidateFeature::EngineRunning => said(|said| said.running),
                CandidateFeature::EngineWaiting => said(|said| said.waiting),
                CandidateFeature::EngineKvUsage => said(|said| said.kv_usage),
                CandidateFeature::EngineKvTokens => said(|said| said.kv_tokens),
                CandidateFeature::EngineAgeMs => engine.map_or(f64::NAN, |(_, at_ms)| {
                    (now_us / 1_000).saturating_sub(at_ms) as f64
                }),
                CandidateFeature::Label(key) => worker.label_number(key),
                CandidateFeature::Unknown => f64::NAN,
            });
        }
    }

    fn prompt(&self) -> u32 {
        self.asked.request.prompt_tokens
    }

    /// Tokens of the prompt that are cached there, as far as is known.
    fn cached(&self) -> u32 {
        self.found.map_or(0, |found| found.any_tokens).min(self.prompt())
    }

    /// In milliseconds, where costs are told.
    fn told_prefill_ms(&self) -> Option<f64> {
        let lengths = Lengths::new(self.prompt(), self.found, self.source);
        let us = self
            .sight
            .prices
            .prefill_us(self.asked.number, self.at, lengths)?;
        Some(us / 1e3)
    }

    fn prefill_ms(&self) -> f64 {
        let (prompt, cached) = (self.prompt(), self.cached());
        self.told_prefill_ms()
            .unwrap_or_else(|| self.worker.load().cost().prefill_ms(prompt - cached, cached))
    }

    /// Where costs are told, of the tokens that wait there; where none do, of this prompt.
    fn token_ms(&self) -> f64 {
        let Some(own_ms) = self.told_prefill_ms() else {
            return self.worker.load().cost().token_ms();
        };
        match self.load.prefill_tokens {
            0 => own_ms / f64::from((self.prompt() - self.cached()).max(1)),
            tokens => millis(self.sight.backlogs[self.at].left_us(self.asked.now_us)) / tokens as f64,
        }
    }

    fn transfer_ms(&self) -> f64 {
        let told = self.sight.prices.transfer_us(self.asked.number, self.prompt());
        told.map_or_else(
            || self.worker.load().cost().transfer_ms(self.prompt()),
            |us| us / 1e3,
        )
    }

    /// Were this request among those that decode.
    fn tbt_ms(&self) -> f64 {
        let batch = self.load.decoding + 1;
        let resident = self.load.prompt_tokens + u64::from(self.prompt());
        let told = self
            .sight
            .prices
            .step_us(self.asked.number, self.at, batch, resident);
        told.map_or_else(
            || self.worker.load().cost().tbt_ms(batch, resident),
            |us| us / 1e3,
        )
    }
}

fn millis(us: u64) -> f64 {
    us as f64 / 1e3
}
