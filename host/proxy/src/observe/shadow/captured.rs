//! State of the router at the moment of a placement, kept for shadows.

use std::sync::Arc;

use http::HeaderValue;
use placement::{AttemptState, Candidates, EligibleSet, PrefixMatches, WorkerPlacement};
use routing::{LoadReading, WorkerId};

use crate::dispatch::router_view::{HoldWindow, RouterView};
use crate::request::context::RequestContext;

/// Captured placement of one request. Its loads and matches are those of the moment, without the request itself. A
/// later look would find it booked at its worker and expected in its cache.
pub(crate) struct Captured {
    pub(super) request: Arc<RequestContext>,
    pub(super) rows: Arc<CapturedRows>,
    pub(super) placement: WorkerPlacement,
    /// State without a tried worker.
    pub(super) state: AttemptState<'static>,
    pub(super) window: HoldWindow,
    pub(super) now_us: u64,
    /// The policy that placed it: `NAME@VERSION`.
    pub(super) decided_by: Option<HeaderValue>,
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

impl Captured {
    /// Offers a request that was just placed to the shadows of its route, where it has any and the request is in their
    /// share. `decided` has the inputs of the decision.
    pub(crate) fn offer(
        view: &RouterView<'_>,
        decided: (EligibleSet, &Candidates),
        (placement, state): (WorkerPlacement, AttemptState<'_>),
    ) {
        let (proxy, request) = (view.proxy, view.request);
        let shadows = request.route().shadows.as_ref();
        let Some(shadows) = shadows.filter(|shadows| shadows.take(request.seed())) else {
            return;
        };
        // Nothing is copied if the queue is full.
        if !proxy.shadows.has_room(request.body.len()) {
            return shadows.dropped();
        }
        let captured = Self {
            rows: Arc::new(CapturedRows::of(view, decided)),
            request: Arc::clone(request),
            placement,
            state: AttemptState { tried: &[], ..state },
            window: view.window,
            now_us: proxy.now_us(),
            decided_by: request.decided_by.header(),
        };
        if !proxy.shadows.push(captured) {
            shadows.dropped();
        }
    }
}

impl CapturedRows {
    fn of(view: &RouterView<'_>, (eligible, decided): (EligibleSet, &Candidates)) -> Self {
        let (proxy, request) = (view.proxy, view.request);
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
            proxy.find_matches(request, &ids, &mut matches);
        }
        let pool = request.pool();
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
