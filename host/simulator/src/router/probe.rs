//! Test access to a router: a given state, and one decision about a request. Another crate's tests compare the decision
//! with the server's.

use std::sync::Arc;

use placement::{NoCandidate, PlacementOutcome, PlacementPart};
use routing::{Tier, Worker, WorkerId};

use super::index::TracePrompt;
use super::single::{Replica, Router};
use super::spec::{Policies, RouterSpec};
use super::state::{PlacedRequest, RequestAttempts};
use crate::engine::CacheEvent;
use crate::request::Request;
use crate::spec::ClusterSpec;

/// A router in a given state.
#[derive(Debug)]
pub struct RouterProbe(Router);

/// A request whose decision is wanted.
#[derive(Debug)]
pub struct ProbedRequest<'a> {
    /// Place in the trace.
    pub number: usize,
    /// The request.
    pub request: &'a Request,
    /// Number of decisions before this one.
    pub attempt: u32,
    /// Workers that failed at it.
    pub tried: Vec<WorkerId>,
    /// Set if the request is held until this decision.
    pub is_held: bool,
    /// The part that is placed.
    pub part: PlacementPart,
    /// Microseconds of virtual time.
    pub now_us: u64,
}

impl RouterProbe {
    /// Returns the only router of a cluster.
    #[must_use]
    pub fn new(cluster: &ClusterSpec, block_tokens: u32, policies: Policies, spec: &RouterSpec) -> Self {
        Self(Router::new(
            cluster,
            block_tokens,
            policies,
            spec,
            Replica { at: 0, of: 1 },
        ))
    }

    /// Returns its workers, in the order of the cluster. Their loads can be booked.
    #[must_use]
    pub fn workers(&self) -> &[Arc<Worker>] {
        self.0.state.fleet.workers()
    }

    /// Publishes that a worker's cache has these blocks, which begin a prompt.
    pub fn store(&mut self, worker: usize, blocks: &[u64], tier: Tier) {
        let event = CacheEvent::Stored {
            blocks: blocks.to_vec(),
            parent: None,
            tier,
        };
        self.0.cache_event(0, worker, &event);
    }

    /// Expects a request's prompt at a worker that it was sent to.
    pub fn expect(&mut self, worker: usize, request: &Request) {
        self.0.state.index.expect(worker, &TracePrompt::of(request));
    }

    /// Ejects a worker: it failed at a request.
    pub fn eject(&mut self, worker: usize, now_us: u64) {
        self.0.state.fleet.failed(worker, now_us);
    }

    /// Removes a worker.
    pub fn remove(&mut self, worker: usize) {
        self.0.state.fleet.gone(worker);
    }

    /// Decides about a request and books nothing.
    ///
    /// # Errors
    /// [`NoCandidate`] where no worker is eligible.
    pub fn decide(&mut self, probed: &ProbedRequest<'_>) -> Result<PlacementOutcome, NoCandidate> {
        let attempts = RequestAttempts {
            tried: probed.tried.clone(),
            is_held: probed.is_held,
            ..RequestAttempts::default()
        };
        let placed = PlacedRequest {
            number: probed.number,
            request: probed.request,
            arrived_us: probed.request.at_us,
            prompt: &Arc::new(TracePrompt::of(probed.request)),
            attempts: &attempts,
            attempt: probed.attempt,
            now_us: probed.now_us,
        };
        self.0.decide(placed, probed.part)
    }
}
