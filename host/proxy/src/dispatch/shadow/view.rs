//! View of a captured placement. A shadow decides on it as its route's policy did. Its members are the captured rows.

use std::sync::Arc;
use std::time::Duration;

use placement::{
    AllowedShapes, Eligibility, FleetView, PolicyView, PoolView, PrefixMatches, QuerySource, RequestIdentity,
    RequestValues, RequestView, VersionedFleet, WorkerColumns,
};
use routing::{LeastLoaded, LoadReading, Phase, PolicyVersions, Worker, WorkerId};

use super::captured::{CapturedPlacement, CapturedRows};
use crate::dispatch::queries::RequestQueries;
use crate::dispatch::router_view::{MemberColumns, RouterView};
use crate::dispatch::sources::DecisionSources;

/// View of one captured placement, for the shadow that decides.
pub(super) struct ShadowView<'a> {
    router: RouterView<'a>,
    captured: &'a CapturedPlacement,
    policy: &'a PolicyVersions,
}

/// Error of a shadow that gave no answer. No fallback stands in for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unanswered;

impl<'a> ShadowView<'a> {
    pub(super) fn new(
        sources: &'a DecisionSources,
        captured: &'a CapturedPlacement,
        policy: &'a PolicyVersions,
    ) -> Self {
        Self {
            router: RouterView::within(&captured.pool, sources, &captured.request, captured.window),
            captured,
            policy,
        }
    }
}

impl FleetView for ShadowView<'_> {
    type Columns<'a>
        = CapturedColumns<'a>
    where
        Self: 'a;

    fn member_count(&self) -> usize {
        self.captured.rows.members.len()
    }

    fn worker(&self, row: usize) -> &Arc<Worker> {
        self.router.worker(self.captured.rows.members[row])
    }

    /// Returns `true`: a row was a candidate, hence served the model.
    fn serves(&self, _row: usize) -> bool {
        true
    }

    /// Returns `false`: a row was a candidate, hence did not drain.
    fn is_draining(&self, _row: usize) -> bool {
        false
    }

    /// Returns that the row is eligible, because it was a candidate.
    fn eligibility(&self, _row: usize, _seed: u64) -> Eligibility {
        Eligibility::Healthy
    }

    fn columns<'a>(&'a self, members: &[usize], matches: Option<&PrefixMatches>) -> CapturedColumns<'a> {
        CapturedColumns {
            live: self.router.columns(members, matches),
            rows: &self.captured.rows,
        }
    }
}

/// The loads are those of the moment, so columns are not kept.
impl VersionedFleet for ShadowView<'_> {}

/// Numbers of the captured rows: their loads are those of the moment, the rest is read now.
pub(super) struct CapturedColumns<'a> {
    live: MemberColumns<'a>,
    rows: &'a CapturedRows,
}

impl WorkerColumns for CapturedColumns<'_> {
    fn load(&self, row: usize, _worker: &Worker) -> LoadReading {
        self.rows.loads[row]
    }

    fn age(&self, row: usize) -> Duration {
        self.live.age(self.rows.members[row])
    }

    fn failures(&self, row: usize) -> u32 {
        self.live.failures(self.rows.members[row])
    }

    fn cache_blocks(&self, row: usize) -> Option<u64> {
        self.live.cache_blocks(self.rows.members[row])
    }

    fn report_clock_ms(&self, row: usize) -> u64 {
        self.live.report_clock_ms(self.rows.members[row])
    }
}

/// Queries of a shadow: the matches are those of the moment, the rest is answered now.
pub(super) struct CapturedQueries {
    live: RequestQueries,
    rows: Arc<CapturedRows>,
}

impl QuerySource for CapturedQueries {
    fn find_matches(&self, ids: &[WorkerId], matches: &mut PrefixMatches) {
        // Candidates of a phase are some of the captured rows, in the same order.
        let mut ids = ids.iter().peekable();
        let rows = self.rows.ids.iter().enumerate();
        let rows = rows.filter_map(|(row, id)| ids.next_if_eq(&id).map(|_| row));
        matches.copy_rows(&self.rows.matches, rows);
    }

    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        self.live.worker(id)
    }

    fn ahead(&self, ids: &[WorkerId], most: &[u32]) -> Vec<u32> {
        self.live.ahead(ids, most)
    }

    fn header(&self, name: &str) -> Option<String> {
        self.live.header(name)
    }

    fn model(&self) -> &str {
        self.live.model()
    }

    fn path(&self) -> &str {
        self.live.path()
    }
}

impl RequestView for ShadowView<'_> {
    type Queries = CapturedQueries;

    fn identity(&self) -> RequestIdentity {
        self.router.identity()
    }

    fn allowed(&self) -> AllowedShapes {
        self.router.allowed()
    }

    fn values(&self) -> RequestValues {
        self.router.values()
    }

    fn waited(&self) -> Duration {
        self.router.waited()
    }

    fn prefix_key(&self, tokens: u32) -> Option<u64> {
        self.router.prefix_key(tokens)
    }

    fn queries(&self) -> CapturedQueries {
        CapturedQueries {
            live: self.router.queries(),
            rows: Arc::clone(&self.captured.rows),
        }
    }
}

impl PoolView for ShadowView<'_> {
    fn queued(&self) -> usize {
        self.router.queued()
    }

    fn queue_limit(&self) -> usize {
        self.router.queue_limit()
    }

    fn hold_left(&self) -> Duration {
        self.router.hold_left()
    }

    fn serving_workers(&self) -> usize {
        self.router.serving_workers()
    }
}

impl PolicyView for ShadowView<'_> {
    type NoAnswer = Unanswered;

    /// Returns the shadow's policy, which decides all phases.
    fn policy(&self, _phase: Phase) -> &PolicyVersions {
        self.policy
    }

    fn has_phase_policies(&self) -> bool {
        false
    }

    fn fallback(&self) -> Result<&LeastLoaded, Unanswered> {
        Err(Unanswered)
    }

    /// Returns the time of the placement, also for the shadow's circuit.
    fn now_us(&self) -> u64 {
        self.captured.now_us
    }
}
