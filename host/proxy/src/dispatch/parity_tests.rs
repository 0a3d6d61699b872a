//! Differential test: the views of the server and of the simulator, in the same states, have the same candidates, columns and decisions,
//! bit for bit.
//!
//! A state is made from a seed: roles, health, models served, caches, loads, engine reports, failed workers. The policy is called by
//! both with every column of the catalogue; its verdict is a hash of all that it sees, so that any difference changes decisions. Four
//! columns have the wall clock of the server and are left out.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use inference_api::Endpoint;
use kv_index::{Holder, IndexLimits, Sent, SharedPrefixIndex};
use placement::{AttemptState, PlacementPart};
use prometheus_client::registry::Registry;
use routing::{
    Attention, BlockEvent, CANDIDATE_CATALOGUE, Choice, DecisionInput, Dialect, DpRank, EngineBlockHash,
    EngineSaid, FaultKind, FeaturePlan, Fleet, Generation, Hold, LoadLease, Phase, Policy, PolicyFault,
    PolicyVersions, Pool, REQUEST_CATALOGUE, Rejection, Role, RunNumber, SplitMix64, StoredBlocks, Tier,
    Verdict, WaitsFor, WorkerId, WorkerLoad, WorkerSpec,
};
use simulator::{ClusterSpec, Knowledge, Policies, Request, RouterSpec};
use simulator::{ProbedRequest, RouterProbe};

use crate::dispatch::crashes::Crashes;
use crate::dispatch::decide::decide;
use crate::dispatch::router_view::HoldWindow;
use crate::fleet::catalog::RequestModel;
use crate::limits::admission::RequestTerms;
use crate::observe::decided_by::DecidedBy;
use crate::record::{RecordSpec, Recorder};
use crate::request::context::{self, HashedPrompt, RequestContext};
use crate::{
    AssumedCache, Authorization, ConnectionsSpec, EdgeSpec, Expectation, HealthSpec, LiveFeeds, ModelsSpec,
    Objectives, PdSpec, PoolSpec, PoolTimeouts, Proxy, ProxyMetrics, ProxyParts, Readiness, RequestLimits,
    RetrySpec, RouteSpec, SnapshotCell, SnapshotPlan, SnapshotSpec, TokenSource, TrialSpec,
};

/// Tokens of a block, in the trace and in the index.
const BLOCK: u32 = 16;
/// Blocks that a worker's cache holds.
const CAPACITY: usize = 1_000;
/// Virtual time of the decisions, in microseconds.
const NOW_US: u64 = 1_000;
/// Columns that have the wall clock of the server.
const CLOCK_COLUMNS: [&str; 3] = ["request.waited-ms", "worker.age-ms", "engine.age-ms"];
const STATES: u64 = 400;

/// A call as the policy saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenCall {
    phase: Phase,
    identity: (u64, RunNumber, Option<u64>, u32),
    ids: Vec<WorkerId>,
    /// Bits of the columns, but for those of the clock.
    numbers: Vec<u64>,
    /// Answers to queries.
    answers: Vec<u32>,
}

/// Decides by a hash of all that it sees.
#[derive(Debug)]
struct HashPolicy {
    plan: FeaturePlan,
    names: [Vec<&'static str>; 2],
    queries: bool,
    seen: Mutex<Vec<SeenCall>>,
}

impl HashPolicy {
    fn new(kind: &PolicyKind) -> Arc<Self> {
        let request = REQUEST_CATALOGUE.iter().map(|(_, doc)| doc.name);
        let candidate = CANDIDATE_CATALOGUE.iter().map(|(_, doc)| doc.name);
        let is_wanted = |name: &&str| {
            (kind.pairs || *name != "worker.role")
                && (kind.has_prefix || !name.starts_with("prefix.") && *name != "cost.prefill-ms")
        };
        let names = [
            request.filter(is_wanted).collect::<Vec<_>>(),
            candidate.filter(is_wanted).collect(),
        ];
        Arc::new(Self {
            plan: FeaturePlan::resolve(&names[0], &names[1]).unwrap(),
            names,
            queries: kind.queries,
            seen: Mutex::default(),
        })
    }

    fn see(&self, input: &DecisionInput<'_>) -> SeenCall {
        let [request, candidate] = &self.names;
        let names = request.iter().chain(candidate.iter().cycle());
        let numbers = names.zip(input.numbers);
        let numbers = numbers.filter(|(name, _)| !CLOCK_COLUMNS.contains(name));
        let facts = input.request;
        let mut answers = Vec::new();
        if self.queries {
            answers.extend([Tier::Device, Tier::Host, Tier::Disk].map(|tier| input.queries.matched(tier)));
            answers.push(vec![input.queries.holders(BLOCK)]);
            answers.push(input.queries.ahead(&vec![10; input.ids.len()]));
        }
        SeenCall {
            phase: facts.phase,
            identity: (facts.seq, facts.run, facts.session, facts.attempt),
            ids: input.ids.to_vec(),
            numbers: numbers.map(|(_, number)| number.to_bits()).collect(),
            answers: answers.concat(),
        }
    }
}

impl Policy for HashPolicy {
    fn name(&self) -> &'static str {
        "hash"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }

    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        let seen = self.see(input);
        let numbers = seen.numbers.iter().copied();
        let all = numbers.chain(seen.answers.iter().map(|answer| u64::from(*answer)));
        let hash = all.fold(0_u64, |hash, bits| {
            (hash ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        self.seen.lock().unwrap().push(seen);
        let mut random = SplitMix64::of_decision(hash, 0);
        let mut below = |end: usize| (random.next() % end as u64) as u32;
        let rows = input.ids.len();
        Ok(match below(12) {
            0 => Verdict::Pass,
            1 => Verdict::Reject(Rejection {
                status: 429,
                retry_after_ms: below(1_000),
                reason: "by hash".to_owned(),
            }),
            2 => Verdict::Queue(Hold {
                order: f64::from(below(100)),
                ask_again_ms: below(20_000),
                waits_for: Some(WaitsFor {
                    row: below(rows),
                    work: below(100),
                }),
            }),
            3 => {
                return Err(PolicyFault {
                    policy: "hash".into(),
                    kind: FaultKind::Trap,
                    detail: "by hash".to_owned(),
                });
            }
            kind => Verdict::Route(Choice {
                // Now and then a row that does not exist.
                row: below(rows + usize::from(kind == 4)),
                prefill: (kind < 8 && self.plan.pairs()).then(|| below(rows)),
                score: f64::from(below(1_000)),
            }),
        })
    }
}

/// What a policy sees.
#[derive(Debug, Clone, Copy)]
struct PolicyKind {
    pairs: bool,
    has_prefix: bool,
    queries: bool,
}

/// A state of a router, drawn from a seed.
struct DrawnState {
    random: SplitMix64,
    cluster: ClusterSpec,
    spec: RouterSpec,
    kind: PolicyKind,
    by_phase: bool,
    request: Request,
}

impl DrawnState {
    fn of(seed: u64) -> Self {
        let mut random = SplitMix64::of_decision(seed, 7);
        let mut cluster = ClusterSpec::mixed(1 + below(&mut random, 6), CAPACITY, None);
        let has_pairs = below(&mut random, 2) == 1;
        for worker in &mut cluster.workers {
            worker.speed = [0.5, 1.0, 3.0][below(&mut random, 3)];
            if has_pairs {
                worker.role = [Role::Prefill, Role::Decode, Role::Mixed][below(&mut random, 3)];
            }
        }
        let knowledge = match below(&mut random, 4) {
            0 => Knowledge::None,
            1 => Knowledge::Assumed {
                lifetime_us: 60_000_000,
            },
            _ => Knowledge::Events { lag_us: 0, loss: 0.0 },
        };
        let blocks: Vec<u64> = (1..=1 + below(&mut random, 40) as u64).collect();
        let kind = PolicyKind {
            pairs: below(&mut random, 2) == 1,
            has_prefix: below(&mut random, 3) > 0,
            queries: below(&mut random, 2) == 1,
        };
        Self {
            request: Request {
                at_us: NOW_US,
                prompt_tokens: BLOCK * blocks.len() as u32,
                output_tokens: 10,
                blocks: blocks.into(),
                session: None,
            },
            spec: RouterSpec {
                knowledge,
                decode_alone: below(&mut random, 2) == 1,
                rest_us: 60_000_000,
                seed: seed % (1 << 32),
                ..RouterSpec::default()
            },
            by_phase: below(&mut random, 4) == 0,
            kind,
            cluster,
            random,
        }
    }

    fn below(&mut self, end: usize) -> usize {
        below(&mut self.random, end)
    }
}

fn below(random: &mut SplitMix64, end: usize) -> usize {
    (random.next() % end as u64) as usize
}

/// The server and the simulator in the same state.
struct TwoRouters {
    proxy: Arc<Proxy>,
    probe: RouterProbe,
    /// Bookings of both.
    leases: Vec<LoadLease>,
}

impl TwoRouters {
    fn in_state(state: &mut DrawnState, policies: [&Arc<HashPolicy>; 4]) -> Self {
        let [first, second, simulated_first, simulated_second] =
            policies.map(|policy| Arc::clone(policy) as Arc<dyn Policy>);
        let simulated = if state.by_phase {
            Policies::ByPhase {
                prefill: simulated_first,
                decode: simulated_second,
            }
        } else {
            Policies::One(simulated_first)
        };
        let mut probe = RouterProbe::new(&state.cluster, BLOCK, simulated, &state.spec);
        let mut specs: Vec<WorkerSpec> = probe
            .workers()
            .iter()
            .map(|worker| worker.spec().clone())
            .collect();
        for (at, spec) in specs.iter_mut().enumerate() {
            // One that has left the cluster is, for the server, one that does not serve the model.
            if state.below(8) == 0 {
                probe.remove(at);
                spec.models = vec!["another".into()];
            }
        }
        let mut both = Self {
            proxy: server(state, specs, first, second),
            probe,
            leases: Vec::new(),
        };
        for worker in 0..state.cluster.workers.len() {
            both.draw_worker(state, worker);
        }
        both
    }

    fn draw_worker(&mut self, state: &mut DrawnState, worker: usize) {
        let snapshot = self.proxy.snapshots.load();
        let member = &snapshot.pools[0].members[worker];
        let link = &member.link;
        let dispatch = link.begin();
        link.answered(dispatch);
        if state.below(3) == 0 {
            link.health.failed(link.begin(), link.now_ms(), || true);
            self.probe.eject(worker, NOW_US);
        }
        let loads = [member.worker.load(), self.probe.workers()[worker].load()].map(Arc::clone);
        self.draw_load(state, &loads);
        if state.below(2) == 0 {
            let said = EngineSaid {
                running: state.below(9) as f64,
                waiting: state.below(9) as f64,
                kv_usage: state.below(100) as f64 / 100.0,
                kv_tokens: 1_000.0,
            };
            loads.iter().for_each(|load| load.engine_said(said, 0));
        }
        for tier in [Tier::Disk, Tier::Host, Tier::Device] {
            let blocks = state.below(1 + state.request.blocks.len());
            let blocks = state.request.blocks[..blocks].to_vec();
            if !blocks.is_empty() && matches!(state.spec.knowledge, Knowledge::Events { .. }) {
                self.probe.store(worker, &blocks, tier);
                store(&self.proxy, member.worker.id(), &blocks, tier);
            }
        }
        if state.below(2) == 0 && matches!(state.spec.knowledge, Knowledge::Assumed { .. }) {
            let blocks = state.request.blocks[..state.request.blocks.len().div_ceil(2)].to_vec();
            self.probe.expect(
                worker,
                &Request {
                    prompt_tokens: BLOCK * blocks.len() as u32,
                    blocks: blocks.clone().into(),
                    ..state.request.clone()
                },
            );
            let sent = Sent {
                worker: member.worker.id(),
                block_size: BLOCK,
                capacity: CAPACITY as u64,
            };
            let prompt = HashedPrompt::new(tokens_of(&blocks), None, None);
            self.proxy.index.expect(&sent, &mut prompt.lock());
        }
    }

    /// Books the same requests on both loads.
    fn draw_load(&mut self, state: &mut DrawnState, loads: &[Arc<WorkerLoad>; 2]) {
        for _ in 0..state.below(30) {
            let (prompt, cached) = (16 + state.below(4_000) as u32, state.below(16) as u32);
            let first_token = Duration::from_micros(1_000 + state.below(900_000) as u64);
            let decoded = Duration::from_micros(50_000 + state.below(900_000) as u64);
            let (kind, end) = (state.below(3), state.below(4));
            for load in loads {
                let mut lease = match kind {
                    0 => load.book_fetched(prompt),
                    _ => load.book(prompt, prompt - cached),
                };
                if end > 0 {
                    lease.first_token(first_token);
                }
                if end > 1 {
                    lease.decoded(40, decoded);
                } else {
                    self.leases.push(lease);
                }
            }
        }
    }
}

/// Publishes on the server that a worker's cache has these blocks.
fn store(proxy: &Proxy, worker: WorkerId, blocks: &[u64], tier: Tier) {
    let holder = Holder {
        worker,
        rank: DpRank(0),
    };
    let stored = StoredBlocks {
        hashes: blocks.iter().map(|block| EngineBlockHash(*block)).collect(),
        parent: None,
        tokens: tokens_of(blocks),
        block_size: BLOCK,
        tier,
        lora: None,
        extra_keys: Vec::new(),
        group: 0,
        attention: Attention::Full,
    };
    proxy.index.apply(holder, &BlockEvent::Stored(stored));
}

/// Returns the tokens that stand for blocks of a trace.
fn tokens_of(blocks: &[u64]) -> Vec<u32> {
    let of_block = |block: &u64| {
        let mut tokens = vec![0; BLOCK as usize];
        tokens[0] = *block as u32;
        tokens
    };
    blocks.iter().flat_map(of_block).collect()
}

fn server(
    state: &DrawnState,
    workers: Vec<WorkerSpec>,
    first: Arc<dyn Policy>,
    second: Arc<dyn Policy>,
) -> Arc<Proxy> {
    let mut registry = Registry::default();
    let metrics = ProxyMetrics::new(&mut registry);
    let (fleet, _) = Fleet::default().next(workers);
    let plan = SnapshotPlan::new(None, snapshot_spec(state, &fleet, first, second)).unwrap();
    let live = Arc::<LiveFeeds>::default();
    if matches!(state.spec.knowledge, Knowledge::Events { .. }) {
        fleet
            .workers()
            .iter()
            .for_each(|worker| live.set(worker.id(), true));
    }
    Proxy::new(ProxyParts {
        snapshots: Arc::new(SnapshotCell::new(plan, &metrics)),
        index: Arc::new(SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 20 })),
        live,
        metrics,
        registry: Arc::new(registry),
        readiness: Readiness::default(),
    })
}

fn snapshot_spec(
    state: &DrawnState,
    fleet: &Fleet,
    first: Arc<dyn Policy>,
    second: Arc<dyn Policy>,
) -> SnapshotSpec {
    let ample = Duration::from_secs(60);
    let first = PolicyVersions::only(first);
    let assumed = AssumedCache {
        tokens: CAPACITY as u64 * u64::from(BLOCK),
        block_size: BLOCK,
        lifetime: ample,
    };
    let is_assumed = matches!(state.spec.knowledge, Knowledge::Assumed { .. });
    let pool = PoolSpec {
        pool: Pool {
            name: "main".into(),
            workers: fleet.workers().into(),
        },
        tokens: TokenSource::Off,
        expectation: Expectation {
            until_told: Duration::ZERO,
            assumed: is_assumed.then_some(assumed),
        },
        queue_limit: state.spec.queue.limit,
        queue_timeout: Duration::from_micros(state.spec.queue.timeout_us),
        admission: None,
        keep_alive: None,
        adapters: vec![],
        model_list: None,
        authorization: Authorization::Pass,
        connections: ConnectionsSpec::default(),
        accept_handover: false,
        isolate_prefixes: false,
        pd: Some(PdSpec {
            dialect: Some(Dialect::Nixl),
            alone: state.spec.decode_alone,
            connect_timeout: ample,
            prefill_timeout: ample,
            first_token_timeout: ample,
            idle_timeout: ample,
        }),
        health: HealthSpec {
            rest: ample,
            longest_rest: ample,
            slow_start: Duration::ZERO,
            ..HealthSpec::default()
        },
        scrape: None,
        retries: RetrySpec::default(),
        timeouts: PoolTimeouts::default(),
    };
    SnapshotSpec {
        generation: Generation(1),
        pools: vec![pool],
        routes: vec![RouteSpec {
            prefill_policy: state.by_phase.then(|| Arc::clone(&first)),
            decode_policy: state.by_phase.then(|| PolicyVersions::only(second)),
            policy: first,
            models: vec![],
            path: None,
            headers: vec![],
            pool: "main".to_owned(),
            trials: TrialSpec::default(),
            objectives: Objectives::default(),
        }],
        models: ModelsSpec::default(),
        limits: RequestLimits {
            body_bytes: 1 << 20,
            connect_timeout: ample,
            first_byte_timeout: ample,
            idle_timeout: ample,
            first_token_timeout: None,
            request_timeout: None,
            attempts: 3,
        },
        record: RecordSpec::nothing(Recorder::of_run(
            &mut Registry::default(),
            RunNumber(state.spec.seed << 32),
        )),
        decision_headers: true,
        edge: EdgeSpec::default(),
        clients: vec![],
        metrics_on_listen: true,
        policy_headers: vec![],
    }
}

/// The request of the trace as the server has it.
async fn server_request(proxy: &Proxy, state: &DrawnState, number: usize) -> Arc<RequestContext> {
    let snapshot = proxy.snapshots.load();
    let endpoint = Endpoint::Completions;
    let body = Bytes::from_static(br#"{"model":"m","prompt":"p","stream":true}"#);
    let peek = inference_api::peek(endpoint, &body).unwrap();
    let pool = snapshot.pool_of(0);
    let split = context::split(pool, endpoint, &peek, &body).await.unwrap();
    assert!(split.is_some());
    Arc::new(RequestContext {
        route: 0,
        assignment: None,
        seq: number as u64 + 1,
        run: proxy.run,
        id: HeaderValue::from_static("r"),
        arrived: Instant::now(),
        endpoint,
        method: Method::POST,
        target: "/v1/completions".parse().unwrap(),
        headers: HeaderMap::new(),
        body: vec![b'x'; 4 * state.request.prompt_tokens as usize].into(),
        estimated_tokens: 0,
        model: "m".into(),
        served: RequestModel::new(pool.catalog.find("m")),
        stream: true,
        max_tokens: None,
        priority: None,
        session: None,
        prompt: Some(HashedPrompt::new(tokens_of(&state.request.blocks), None, None)),
        split,
        trace: None,
        decided_by: DecidedBy::default(),
        is_sent: AtomicBool::new(false),
        crashes: Crashes::default(),
        pinned: None,
        terms: RequestTerms::default(),
        caller: None,
        snapshot,
    })
}

/// Decides on both sides in the state of a seed. Returns how many calls and outcomes of each kind there were.
async fn compare(seed: u64, kinds: &mut [usize; 4]) {
    let mut state = DrawnState::of(seed);
    let policies: [Arc<HashPolicy>; 4] = std::array::from_fn(|_| HashPolicy::new(&state.kind));
    let mut both = TwoRouters::in_state(&mut state, policies.each_ref());
    for (number, attempt) in [(0, 0), (1, 0), (1, 1)] {
        let request = server_request(&both.proxy, &state, number).await;
        let tried: Vec<WorkerId> = (0..state.cluster.workers.len() as u32)
            .map(WorkerId)
            .filter(|_| attempt > 0 && below(&mut state.random, 3) == 0)
            .collect();
        let part = match state.below(6) {
            0 => PlacementPart::Decode,
            _ => PlacementPart::Request,
        };
        let is_held = state.below(2) == 1;
        let attempts = AttemptState {
            attempt,
            tried: &tried,
            is_held,
        };
        let server = decide(&both.proxy, &request, part, (attempts, HoldWindow::default()));
        let simulated = both.probe.decide(&ProbedRequest {
            number,
            request: &state.request,
            attempt,
            tried: tried.clone(),
            is_held,
            part,
            now_us: NOW_US,
        });
        let server = format!("{server:?}");
        assert_eq!(
            server,
            format!("{simulated:?}"),
            "decision {number} of seed {seed}"
        );
        for (kind, name) in kinds.iter_mut().zip(["Dispatch", "Hold", "Reject", "Err"]) {
            *kind += usize::from(server.contains(name));
        }
    }
    let [first, second, simulated_first, simulated_second] = policies
        .each_ref()
        .map(|policy| policy.seen.lock().unwrap().clone());
    assert_eq!(first, simulated_first, "calls of seed {seed}");
    assert_eq!(
        second, simulated_second,
        "calls of the second policy of seed {seed}"
    );
}

#[tokio::test]
async fn server_and_simulator_decide_alike_in_the_same_states() {
    let mut kinds = [0; 4];
    for seed in 0..STATES {
        compare(seed, &mut kinds).await;
    }
    assert!(kinds.iter().all(|count| *count > 20), "rare outcomes: {kinds:?}");
}
