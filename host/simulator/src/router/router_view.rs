//! View of a simulated router for decisions: the state of the router in virtual time, and one request of the trace.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use placement::{
    AllowedShapes, CallAnswer, CallFault, CalledPolicy, CandidateRow, Candidates, CostFeature, Eligibility,
    FallbackCause, FleetView, PlacementObserver, PolicyCall, PolicyView, PoolView, PrefixMatches,
    QuerySource, RequestIdentity, RequestValues, RequestView, VersionedFleet, WorkerColumns,
};
use routing::{
    Chosen, CircuitChange, Decision, LeastLoaded, Phase, PolicyVersions, Role, RunNumber, WaitersByWorker,
    Worker, WorkerId, add_held_elsewhere,
};

use super::counts::RouterCounts;
use super::index::{IndexReader, TracePrompt};
use super::prices::PromptLengths;
use super::single::session_hash;
use super::spec::PolicyChains;
use super::state::{PlacedRequest, RouterState};

/// Bytes of a body for each token of its prompt. Where tokens are not known, the server takes a quarter of the bytes
/// for their number.
const BYTES_PER_TOKEN: u64 = 4;
/// Path of every request of a trace.
const PATH: &str = "/v1/completions";

/// The state of a router with regard to one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouterView<'a> {
    pub(super) state: &'a RouterState,
    pub(super) policies: &'a PolicyChains,
    pub(super) fallback: &'a LeastLoaded,
    pub(super) placed: PlacedRequest<'a>,
    /// The request's number at this router, from 1.
    pub(super) seq: u64,
    pub(super) run: RunNumber,
}

impl FleetView for RouterView<'_> {
    type Columns<'a>
        = SimulatedColumns<'a>
    where
        Self: 'a;

    fn member_count(&self) -> usize {
        self.state.fleet.workers().len()
    }

    fn worker(&self, member: usize) -> &Arc<Worker> {
        &self.state.fleet.workers()[member]
    }

    /// Returns whether the worker serves the request. A worker that has left keeps its place in the cluster and serves
    /// no model.
    fn serves(&self, member: usize) -> bool {
        self.state.fleet.is_there(member)
    }

    /// A simulated worker never drains.
    fn is_draining(&self, _member: usize) -> bool {
        false
    }

    /// Returns the eligibility. A simulated worker has no slow start: it is healthy as soon as its ejection ends.
    fn eligibility(&self, member: usize, _seed: u64) -> Eligibility {
        if self.state.fleet.is_awake(member, self.placed.now_us) {
            Eligibility::Healthy
        } else {
            Eligibility::OutOfService
        }
    }

    fn columns<'a>(&'a self, members: &[usize], matches: Option<&PrefixMatches>) -> SimulatedColumns<'a> {
        let matches = matches.filter(|_| self.state.prices.are_given());
        SimulatedColumns {
            state: self.state,
            placed: self.placed,
            source: matches.and_then(|matches| self.longest_source(members, matches)),
        }
    }
}

/// Costs may be given, so columns are not kept.
impl VersionedFleet for RouterView<'_> {}

impl RouterView<'_> {
    /// Returns the longest match of the workers that others may fetch from.
    fn longest_source(&self, members: &[usize], matches: &PrefixMatches) -> Option<u32> {
        let rows = members.iter().enumerate();
        let sources = rows.filter(|(_, member)| self.worker(**member).spec().role != Role::Decode);
        let held = sources.filter_map(|(row, _)| matches.get(row));
        held.map(|found| found.any_tokens).max()
    }
}

/// Numbers of the workers at the request's moment. Where prices are given, they replace the costs that the workers'
/// models learned.
pub(super) struct SimulatedColumns<'a> {
    state: &'a RouterState,
    placed: PlacedRequest<'a>,
    /// The longest match that could be fetched.
    source: Option<u32>,
}

impl WorkerColumns for SimulatedColumns<'_> {
    fn age(&self, member: usize) -> Duration {
        Duration::from_micros(self.state.fleet.age_us(member, self.placed.now_us))
    }

    fn failures(&self, member: usize) -> u32 {
        self.state.fleet.failures(member)
    }

    fn cache_blocks(&self, member: usize) -> Option<u64> {
        let worker = &self.state.fleet.workers()[member];
        self.state.index.reader().held_blocks(worker.id())
    }

    fn report_clock_ms(&self, _member: usize) -> u64 {
        self.placed.now_us / 1_000
    }

    fn cost(&self, feature: CostFeature, row: &CandidateRow<'_>) -> f64 {
        let given_ms = match feature {
            CostFeature::Prefill => self.prefill_ms(row),
            CostFeature::Token => self.token_ms(row),
            CostFeature::Transfer => {
                let us = self
                    .state
                    .prices
                    .transfer_us(self.placed.number, row.numbers.prompt_tokens);
                us.map(|us| us / 1e3)
            }
            CostFeature::TimeBetweenTokens => {
                let (batch, resident) = row.numbers.decode_batch();
                let number = self.placed.number;
                let us = self.state.prices.step_us(number, row.member, batch, resident);
                us.map(|us| us / 1e3)
            }
        };
        given_ms.unwrap_or_else(|| row.numbers.learned_cost(feature))
    }
}

impl SimulatedColumns<'_> {
    fn prefill_ms(&self, row: &CandidateRow<'_>) -> Option<f64> {
        let lengths = PromptLengths::new(row.numbers.prompt_tokens, row.numbers.found, self.source);
        let us = self
            .state
            .prices
            .prefill_us(self.placed.number, row.member, lengths)?;
        Some(us / 1e3)
    }

    /// Returns the time for each token that waits at a worker; where none does, for each of this prompt.
    fn token_ms(&self, row: &CandidateRow<'_>) -> Option<f64> {
        let own_ms = self.prefill_ms(row)?;
        Some(match row.numbers.load.prefill_tokens {
            0 => own_ms / f64::from((row.numbers.prompt_tokens - row.numbers.cached_tokens()).max(1)),
            tokens => {
                let own_us = self.state.backlogs[row.member].left_us(self.placed.now_us);
                let others = self.state.fleet.workers()[row.member].load().others().read();
                let left_us = own_us as f64 + self.state.prices.waiting_us(row.member, &others);
                left_us / 1e3 / tokens as f64
            }
        })
    }
}

/// Queries of a policy about one request. A trace has no headers.
#[derive(Debug)]
pub(super) struct TraceQueries {
    reader: IndexReader,
    prompt: Arc<TracePrompt>,
    workers: Arc<[Arc<Worker>]>,
    waiters: Arc<Mutex<WaitersByWorker>>,
    model: Arc<str>,
}

impl QuerySource for TraceQueries {
    fn find_matches(&self, ids: &[WorkerId], matches: &mut PrefixMatches) {
        self.reader.find_matches(&self.prompt, ids, matches);
    }

    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        self.workers.iter().find(|worker| worker.id() == id).cloned()
    }

    fn ahead(&self, ids: &[WorkerId], most: &[u32]) -> Vec<u32> {
        let waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ahead = waiters.ahead(ids, most);
        drop(waiters);
        add_held_elsewhere(&mut ahead, ids, most, self.workers.iter().map(Arc::as_ref));
        ahead
    }

    fn header(&self, _name: &str) -> Option<String> {
        None
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn path(&self) -> &str {
        PATH
    }
}

impl RequestView for RouterView<'_> {
    type Queries = TraceQueries;

    fn identity(&self) -> RequestIdentity {
        RequestIdentity {
            seq: self.seq,
            run: self.run,
            session: self.placed.request.session.map(session_hash),
        }
    }

    /// Returns the allowed shapes. Every request of a trace can be split.
    fn allowed(&self) -> AllowedShapes {
        AllowedShapes {
            mixed: true,
            pair: true,
            alone: self.state.decode_alone,
        }
    }

    /// Returns the values of the request. A trace does not record the longest answer, the priority and the target of
    /// its requests: [`UNKNOWN_NUMBERS`](crate::UNKNOWN_NUMBERS).
    fn values(&self) -> RequestValues {
        let tokens = self.placed.request.prompt_tokens;
        RequestValues {
            prompt_tokens: Some(tokens.into()),
            estimated_tokens: tokens,
            max_tokens: None,
            body_bytes: u64::from(tokens) * BYTES_PER_TOKEN,
            priority: None,
            stream: true,
            ttft_target: None,
        }
    }

    fn waited(&self) -> Duration {
        let PlacedRequest {
            arrived_us, now_us, ..
        } = self.placed;
        Duration::from_micros(now_us.saturating_sub(arrived_us))
    }

    fn prefix_key(&self, tokens: u32) -> Option<u64> {
        self.state.index.reader().key(self.placed.prompt, tokens)
    }

    fn queries(&self) -> TraceQueries {
        TraceQueries {
            reader: self.state.index.reader().clone(),
            prompt: Arc::clone(self.placed.prompt),
            workers: self.state.fleet.shared_workers(),
            waiters: Arc::clone(&self.state.waiters),
            model: Arc::clone(&self.placed.request.model),
        }
    }
}

impl PoolView for RouterView<'_> {
    fn queued(&self) -> usize {
        self.state.held + self.state.held_elsewhere
    }

    fn queue_limit(&self) -> usize {
        self.state.queue.limit
    }

    fn hold_left(&self) -> Duration {
        let PlacedRequest { attempts, now_us, .. } = self.placed;
        Duration::from_micros(self.state.hold_left_us(attempts, now_us))
    }

    fn serving_workers(&self) -> usize {
        let members = 0..self.member_count();
        members.filter(|member| self.serves(*member)).count()
    }
}

impl PolicyView for RouterView<'_> {
    /// The fallback always has an answer.
    type NoAnswer = Infallible;

    fn policy(&self, phase: Phase) -> &PolicyVersions {
        self.policies.of_phase(phase)
    }

    fn has_phase_policies(&self) -> bool {
        self.policies.decode.is_some()
    }

    fn fallback(&self) -> Result<&LeastLoaded, Infallible> {
        Ok(self.fallback)
    }

    fn now_us(&self) -> u64 {
        self.placed.now_us
    }
}

impl<'v> PlacementObserver<RouterView<'v>> for RouterCounts {
    fn call_started(&mut self) {}

    fn policy_called(&mut self, _: &PolicyCall<'_, RouterView<'v>>, policy: CalledPolicy<'_>) -> bool {
        self.calls += u64::from(matches!(policy, CalledPolicy::Version(_)));
        false
    }

    fn policy_answered(&mut self, _: &PolicyCall<'_, RouterView<'v>>, _: &Candidates, _: CallAnswer<'_>) {}

    fn call_succeeded(
        &mut self,
        _: &PolicyCall<'_, RouterView<'v>>,
        _: Chosen<'_>,
        _: &Decision,
        _: CircuitChange,
    ) {
    }

    fn call_failed(
        &mut self,
        _: &PolicyCall<'_, RouterView<'v>>,
        chosen: Chosen<'_>,
        fault: &CallFault,
        _: CircuitChange,
    ) {
        let policy = chosen.version().policy.name();
        self.fault(fault.kind(), policy, &fault.to_string());
    }

    fn fallback_used(&mut self, _: Phase, _: FallbackCause) {
        self.fallbacks += 1;
    }
}
