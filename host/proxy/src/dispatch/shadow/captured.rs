//! State of the router at the moment of a placement, kept for shadows.

use std::sync::Arc;

use http::HeaderValue;
use placement::{AttemptState, Candidates, EligibleSet, PrefixMatches, WorkerPlacement};
use routing::{LoadReading, WorkerId};

use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::pool_state::PoolState;
use crate::dispatch::router_view::{HoldWindow, RouterView};

/// Captured placement of one request. Its loads and matches are those of the moment, without the request itself. A
/// later look would find it booked at its worker and expected in its cache.
pub(crate) struct CapturedPlacement {
    pub(super) request: Arc<InferenceRequest>,
    /// Pool of the rows. The request may move to a later one.
    pub(super) pool: Arc<PoolState>,
    pub(super) rows: Arc<CapturedRows>,
    pub(super) placement: WorkerPlacement,
    /// State without a tried worker.
    pub(super) state: AttemptState<'static>,
    pub(super) window: HoldWindow,
    pub(super) now_us: u64,
    /// The policy that placed it: `NAME@VERSION`.
    pub(super) decided_by: Option<HeaderValue>,
}

/// Placement that was just decided, with the inputs of its decision.
pub(crate) struct DecidedPlacement<'a> {
    pub(crate) eligible: EligibleSet,
    pub(crate) candidates: &'a Candidates,
    pub(crate) placement: WorkerPlacement,
    pub(crate) state: AttemptState<'a>,
}

/// The candidates of a placement, row by row.
#[derive(Debug)]
pub(super) struct CapturedRows {
    /// Indices of the pool's members.
    pub(super) members: Vec<usize>,
    pub(super) ids: Vec<WorkerId>,
    pub(super) loads: Vec<LoadReading>,
    pub(super) matches: PrefixMatches,
}

impl CapturedPlacement {
    /// Copies the inputs of a decision.
    pub(super) fn new(view: &RouterView<'_>, decided: &DecidedPlacement<'_>) -> Self {
        let request = view.request;
        Self {
            rows: Arc::new(CapturedRows::of(view, decided.eligible, decided.candidates)),
            pool: Arc::clone(view.pool),
            request: Arc::clone(request),
            placement: decided.placement,
            state: AttemptState {
                tried: &[],
                ..decided.state
            },
            window: view.window,
            now_us: view.sources.now_us(),
            decided_by: request.progress.decided_by.header(),
        }
    }
}

impl CapturedRows {
    fn of(view: &RouterView<'_>, eligible: EligibleSet, decided: &Candidates) -> Self {
        let (sources, request) = (view.sources, view.request);
        let mut listed = Candidates::default();
        listed.list(view, &[], eligible);
        let Candidates { members, ids, .. } = listed;
        let mut matches = PrefixMatches::default();
        if decided.members == members {
            matches.clone_from(&decided.matches);
        }
        // A shadow without a column of matches may query them by an import later. By then the index has the request's
        // own blocks.
        if matches.is_empty() {
            sources.find_matches(request, &ids, &mut matches);
        }
        let pool = view.pool;
        let loads = members
            .iter()
            .map(|at| pool.workers.members[*at].worker.load().read());
        Self {
            loads: loads.collect(),
            members,
            ids,
            matches,
        }
    }

    /// Returns the row of a pool's member.
    pub(super) fn row(&self, member: usize) -> Option<usize> {
        self.members.iter().position(|captured| *captured == member)
    }
}
