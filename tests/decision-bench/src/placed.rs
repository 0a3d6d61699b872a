//! A whole decision by the default policy: eligibility, list of candidates, columns, and the call.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kv_index::WorkerMatch;
use placement::{
    AllowedShapes, AttemptState, CacheKnowledge, Candidates, DecisionContext, Eligibility, EligibleSet,
    FallbackCause, FleetVersion, FleetView, PlacementObserver, PlacementOutcome, PlacementPart, PolicyView,
    PoolView, PrefixMatches, QuerySource, RequestIdentity, RequestValues, RequestView, VersionedFleet,
    WorkerColumns,
};
use routing::{
    DpRank, LeastLoaded, LoadLease, Phase, PolicyVersions, RunNumber, Worker, WorkerId, WorkerSpec,
};

use crate::{load, prebuilt};

/// Requests in flight.
const IN_FLIGHT: usize = 64;
/// Length of each prompt.
const PROMPT: u32 = 2_048;

/// A fleet under load, whose requests the default policy places.
pub struct PlacedRequests {
    fleet: PlacedFleet,
    candidates: Candidates,
    leases: VecDeque<LoadLease>,
}

/// A fleet of mixed workers; every third holds a part of each prompt.
struct PlacedFleet {
    workers: Vec<Arc<Worker>>,
    policy: Arc<PolicyVersions>,
    fallback: LeastLoaded,
    version: Option<FleetVersion>,
    seq: u64,
}

impl PlacedRequests {
    /// Creates a fleet of so many workers. `keeps` is set if columns are kept from one decision to the next.
    ///
    /// # Panics
    /// When the component of the policy is missing or is not taken.
    #[must_use]
    pub fn new(workers: usize, keeps: bool) -> Self {
        let worker = |id| Arc::new(Worker::new(WorkerId(id), spec(id)));
        let policy = load("ttft-queue", &prebuilt("ttft-queue"));
        Self {
            fleet: PlacedFleet {
                workers: (0..).map(worker).take(workers).collect(),
                policy: PolicyVersions::only(Arc::new(policy)),
                fallback: LeastLoaded::default(),
                version: keeps.then(FleetVersion::unique),
                seq: 0,
            },
            candidates: Candidates::default(),
            leases: VecDeque::new(),
        }
    }

    /// Places a request and books it; the oldest ends, and one has its first token. Returns the worker's index; `None`
    /// if the policy does not route.
    pub fn place(&mut self) -> Option<usize> {
        self.fleet.seq += 1;
        let view = &self.fleet;
        let mut observer = FallbackObserver::default();
        let mut context = DecisionContext {
            view,
            observer: &mut observer,
            state: AttemptState::default(),
            eligible: EligibleSet::find(view, PlacementPart::Request, &[]).ok()?,
            candidates: &mut self.candidates,
        };
        let Ok(outcome) = context.decide(PlacementPart::Request);
        let PlacementOutcome::Dispatch(placed) = outcome else {
            return None;
        };
        if observer.fell_back {
            return None;
        }
        let member = placed.answers.member;
        let lease = view.workers[member].load().book(PROMPT, PROMPT / 2);
        self.leases.push_back(lease);
        if self.leases.len() > IN_FLIGHT {
            self.leases.pop_front();
        }
        if let Some(lease) = self.leases.front_mut() {
            lease.first_token(Duration::from_millis(100));
        }
        Some(member)
    }
}

fn spec(id: u32) -> WorkerSpec {
    WorkerSpec::mixed(format!("w{id}"), format!("http://w{id}"))
}

impl FleetView for PlacedFleet {
    type Columns<'a> = PlacedColumns;

    fn member_count(&self) -> usize {
        self.workers.len()
    }

    fn worker(&self, member: usize) -> &Arc<Worker> {
        &self.workers[member]
    }

    fn serves(&self, _member: usize) -> bool {
        true
    }

    fn is_draining(&self, _member: usize) -> bool {
        false
    }

    fn eligibility(&self, _member: usize, _seed: u64) -> Eligibility {
        Eligibility::Healthy
    }

    fn columns(&self, _members: &[usize], _matches: Option<&PrefixMatches>) -> PlacedColumns {
        PlacedColumns
    }
}

impl VersionedFleet for PlacedFleet {
    fn fleet_version(&self) -> Option<FleetVersion> {
        self.version
    }
}

/// Numbers that the default policy has no columns of.
struct PlacedColumns;

impl WorkerColumns for PlacedColumns {
    fn age(&self, _member: usize) -> Duration {
        Duration::ZERO
    }

    fn failures(&self, _member: usize) -> u32 {
        0
    }

    fn cache_blocks(&self, _member: usize) -> Option<u64> {
        None
    }

    fn report_clock_ms(&self, _member: usize) -> u64 {
        0
    }
}

/// Queries about one request.
struct PlacedQueries;

impl QuerySource for PlacedQueries {
    fn find_matches(&self, ids: &[WorkerId], matches: &mut PrefixMatches) {
        let held = |id: &WorkerId| if id.0.is_multiple_of(3) { PROMPT / 2 } else { 0 };
        let look_up = |found: &mut Vec<WorkerMatch>| {
            found.extend(ids.iter().map(held).map(|tokens| WorkerMatch {
                device_tokens: tokens,
                host_tokens: tokens,
                any_tokens: tokens,
                expected_tokens: 0,
                rank: DpRank(0),
            }));
        };
        matches.replace(look_up, |_| CacheKnowledge::Live);
    }

    fn worker(&self, _id: WorkerId) -> Option<Arc<Worker>> {
        None
    }

    fn ahead(&self, ids: &[WorkerId], _most: &[u32]) -> Vec<u32> {
        vec![0; ids.len()]
    }

    fn header(&self, _name: &str) -> Option<String> {
        None
    }

    fn model(&self) -> &'static str {
        ""
    }

    fn path(&self) -> &'static str {
        ""
    }
}

impl RequestView for PlacedFleet {
    type Queries = PlacedQueries;

    fn identity(&self) -> RequestIdentity {
        RequestIdentity {
            seq: self.seq,
            run: RunNumber::default(),
            session: Some(self.seq),
        }
    }

    fn allowed(&self) -> AllowedShapes {
        AllowedShapes {
            mixed: true,
            pair: true,
            alone: true,
        }
    }

    fn values(&self) -> RequestValues {
        RequestValues {
            prompt_tokens: Some(PROMPT.into()),
            estimated_tokens: PROMPT,
            max_tokens: None,
            body_bytes: 9_000,
            priority: None,
            stream: true,
            ttft_target: None,
        }
    }

    fn waited(&self) -> Duration {
        Duration::ZERO
    }

    fn prefix_key(&self, _tokens: u32) -> Option<u64> {
        None
    }

    fn queries(&self) -> PlacedQueries {
        PlacedQueries
    }
}

impl PoolView for PlacedFleet {
    fn queued(&self) -> usize {
        0
    }

    /// Returns 0: a held request would not be placed.
    fn queue_limit(&self) -> usize {
        0
    }

    fn hold_left(&self) -> Duration {
        Duration::ZERO
    }

    fn serving_workers(&self) -> usize {
        self.workers.len()
    }
}

impl PolicyView for PlacedFleet {
    type NoAnswer = Infallible;

    fn policy(&self, _phase: Phase) -> &PolicyVersions {
        &self.policy
    }

    fn has_phase_policies(&self) -> bool {
        false
    }

    fn fallback(&self) -> Result<&LeastLoaded, Infallible> {
        Ok(&self.fallback)
    }

    fn now_us(&self) -> u64 {
        self.seq
    }
}

/// Observer that notes only whether the fallback decided.
#[derive(Default)]
struct FallbackObserver {
    fell_back: bool,
}

impl PlacementObserver<PlacedFleet> for FallbackObserver {
    fn fallback_used(&mut self, _: Phase, _: FallbackCause) {
        self.fell_back = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_columns_lead_to_the_same_workers() {
        let (mut kept, mut new) = (PlacedRequests::new(40, true), PlacedRequests::new(40, false));
        let mut seen = vec![0; 40];
        for request in 0..2_000 {
            let member = kept.place().unwrap();
            assert_eq!(new.place(), Some(member), "request {request}");
            seen[member] += 1;
        }
        assert!(
            seen.iter().filter(|requests| **requests > 0).count() > 10,
            "{seen:?}"
        );
    }
}
