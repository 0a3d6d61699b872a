//! Differential test: in the same states, the views of the server and of the simulator have the same candidates,
//! columns and decisions, bit for bit.
//!
//! A state is made from a seed: roles, health, models served, caches, loads, engine reports, failed workers. Both call
//! the policy with every column of the catalogue. Its verdict is a hash of all its inputs, so that any difference
//! changes decisions. Three columns have the wall clock of the server and are left out.

mod routers;

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
    EngineReport, FaultKind, FeaturePlan, Fleet, Generation, Hold, LoadLease, Phase, Policy,
    PolicyDescription, PolicyFault, PolicyVersions, Pool, REQUEST_CATALOGUE, Rejection, Role, RunNumber,
    SplitMix64, StoredBlocks, Tier, Verdict, WaitsFor, WorkerId, WorkerLoad, WorkerSpec,
};
use simulator::{ClusterSpec, Knowledge, Policies, Request, RouterSpec};
use simulator::{ProbedRequest, RouterProbe};

use self::routers::{TwoRouters, server_request};
use crate::dispatch::decide::decide;
use crate::dispatch::hashed_prompt::HashedPrompt;
use crate::dispatch::inference_request::{DispatchProgress, InferenceRequest, RequestParams, RequestSender};
use crate::dispatch::request_head::RequestHead;
use crate::dispatch::request_policies::RequestPolicies;
use crate::dispatch::request_pool::RequestPool;
use crate::dispatch::router_view::HoldWindow;
use crate::fleet::catalog::RequestModel;
use crate::observe::access::AccessHandle;
use crate::observe::spans::SpanHandle;
use crate::observe::watch::RequestWatch;
use crate::record::{RecordSpec, Recorder};
use crate::request::body_facts;
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

/// Policy that decides by a hash of all that it sees.
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

impl PolicyDescription for HashPolicy {
    fn name(&self) -> &'static str {
        "hash"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl Policy for HashPolicy {
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

/// Inputs that a policy sees.
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
                grown_blocks: Box::default(),
                model: "".into(),
                session: None,
                after: None,
                tenant: None,
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
        let server = decide(
            &both.proxy.dispatcher,
            &request,
            part,
            attempts,
            HoldWindow::default(),
            0,
        );
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
