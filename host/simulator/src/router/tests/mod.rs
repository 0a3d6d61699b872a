//! The router by itself: no engines, policies of a few lines.

mod accounts;
mod costs;
mod listeners;
mod numbers;
mod places;
mod replicas;
mod sharing;
mod views;

use std::fmt;
use std::sync::{Arc, Mutex};

use routing::{
    Choice, DecisionInput, EventListener, FeaturePlan, Hold, Policy, PolicyDescription, PolicyFault,
    RequestFacts, Role, Tier, Verdict,
};

use super::single::{Replica, Router};
use super::{ArrivedRequest, Placement, Policies, RouterSpec};
use crate::engine::CacheEvent;
use crate::profile::Profile;
use crate::request::Request;
use crate::spec::{ClusterSpec, WorkerSpec};

/// Tokens of a block in these tests.
const BLOCK: u32 = 512;

/// The router of a cluster that has no other.
const ONLY: Replica = Replica { at: 0, of: 1 };

type Decide = dyn Fn(&DecisionInput<'_>) -> Result<Verdict, PolicyFault> + Send + Sync;

/// Decides as a function does, and keeps what it was shown.
struct Scripted {
    plan: FeaturePlan,
    decide: Box<Decide>,
    seen: Mutex<Vec<Seen>>,
    listeners: Vec<Arc<dyn EventListener>>,
}

/// Inputs of one call.
#[derive(Debug, Clone)]
struct Seen {
    facts: RequestFacts,
    ids: Vec<u32>,
    numbers: Vec<f64>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl PolicyDescription for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl Policy for Scripted {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        self.seen.lock().unwrap().push(Seen {
            facts: *input.request,
            ids: input.ids.iter().map(|id| id.0).collect(),
            numbers: input.numbers.to_vec(),
        });
        (self.decide)(input)
    }

    fn listeners(&self) -> Vec<Arc<dyn EventListener>> {
        self.listeners.clone()
    }
}

impl Scripted {
    fn new(
        request: &[&str],
        candidate: &[&str],
        decide: impl Fn(&DecisionInput<'_>) -> Verdict + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::faulty(request, candidate, move |input| Ok(decide(input)))
    }

    fn faulty(
        request: &[&str],
        candidate: &[&str],
        decide: impl Fn(&DecisionInput<'_>) -> Result<Verdict, PolicyFault> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            plan: FeaturePlan::resolve(request, candidate).unwrap(),
            decide: Box::new(decide),
            seen: Mutex::default(),
            listeners: Vec::new(),
        })
    }

    /// Sends to a row.
    fn row(request: &[&str], candidate: &[&str], row: u32) -> Arc<Self> {
        Self::new(request, candidate, move |_| route(row))
    }

    /// Returns the inputs of the last call.
    fn last(&self) -> Seen {
        self.seen.lock().unwrap().last().unwrap().clone()
    }

    /// Returns the numbers of its last call.
    fn numbers(&self) -> Vec<f64> {
        self.last().numbers
    }
}

/// Lets a test look at what a policy was shown while a router uses it.
fn one(policy: &Arc<Scripted>) -> Policies {
    Policies::One(Arc::clone(policy) as Arc<dyn Policy>)
}

fn route(row: u32) -> Verdict {
    Verdict::Route(Choice {
        row,
        prefill: None,
        score: f64::from(row),
    })
}

fn hold(order: f64, ask_again_ms: u32) -> Verdict {
    Verdict::Queue(Hold {
        order,
        ask_again_ms,
        waits_for: None,
    })
}

fn router(cluster: &ClusterSpec, policy: &Arc<Scripted>, spec: &RouterSpec) -> Router {
    Router::new(cluster, BLOCK, one(policy), spec, ONLY)
}

/// Returns prefill-only workers.
fn workers(count: usize) -> ClusterSpec {
    ClusterSpec::prefill_only(count, 1_000)
}

/// Returns workers of these roles, that decode.
fn roles(roles: &[Role]) -> ClusterSpec {
    let mut cluster = ClusterSpec::mixed(0, 1_000, None);
    let profile = Profile::default();
    cluster.workers = roles
        .iter()
        .map(|role| WorkerSpec::of(&profile, *role, 1_000))
        .collect();
    cluster
}

/// Returns a prompt of so many tokens in these blocks, at the beginning of time.
fn request(prompt_tokens: u32, blocks: &[u64]) -> Request {
    assert_eq!(prompt_tokens.div_ceil(BLOCK) as usize, blocks.len());
    Request {
        at_us: 0,
        prompt_tokens,
        output_tokens: 100,
        blocks: blocks.into(),
        session: None,
        grown_blocks: Box::default(),
        model: "".into(),
        after: None,
        tenant: None,
    }
}

/// Returns a request that arrives at its recorded time.
fn arrives(number: usize, request: &Request) -> ArrivedRequest<'_> {
    ArrivedRequest {
        number,
        request,
        arrived_us: request.at_us,
    }
}

/// Returns a request whose prompt is unique.
fn some_request() -> Request {
    request(2 * BLOCK, &[1_001, 1_002])
}

fn stored(blocks: &[u64], tier: Tier) -> CacheEvent {
    CacheEvent::Stored {
        blocks: blocks.to_vec(),
        parent: None,
        tier,
    }
}

/// Returns the workers of the placement.
#[track_caller]
fn sent(placement: &Placement) -> (usize, Option<usize>) {
    match placement {
        Placement::Dispatch { worker, prefill, .. } => (*worker, *prefill),
        other => panic!("{other:?}"),
    }
}
