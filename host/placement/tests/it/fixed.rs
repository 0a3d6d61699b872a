//! View of fixed values, and an observer that keeps the steps.

use std::sync::Arc;
use std::time::Duration;

use kv_index::WorkerMatch;
use placement::{
    AllowedShapes, AttemptState, CacheKnowledge, CallFault, CalledPolicy, Candidates, DecisionContext,
    Eligibility, EligibleSet, FallbackCause, FleetVersion, FleetView, NoCandidate, PlacementObserver,
    PlacementOutcome, PlacementPart, PolicyCall, PolicyView, PoolView, PrefixMatches, QuerySource,
    RequestIdentity, RequestValues, RequestView, VersionedFleet, WorkerColumns,
};
use routing::{
    Choice, Chosen, CircuitChange, DecisionInput, DpRank, FeaturePlan, LeastLoaded, Phase, Policy,
    PolicyDescription, PolicyFault, PolicyVersions, Role, RunNumber, Verdict, Worker, WorkerId, WorkerSpec,
};

/// A worker and its state.
#[derive(Debug, Clone)]
pub(crate) struct FixedWorker {
    pub(crate) worker: Arc<Worker>,
    pub(crate) serves: bool,
    pub(crate) drains: bool,
    pub(crate) eligibility: Eligibility,
    pub(crate) knowledge: CacheKnowledge,
}

/// The state of a router that does not change.
pub(crate) struct FixedView {
    pub(crate) workers: Vec<FixedWorker>,
    pub(crate) allowed: AllowedShapes,
    pub(crate) policy: Arc<PolicyVersions>,
    pub(crate) has_phase_policies: bool,
    pub(crate) fallback: Option<LeastLoaded>,
    pub(crate) now_us: u64,
    pub(crate) prompt_tokens: u32,
    /// Set if columns are kept from one decision to the next.
    pub(crate) fleet: Option<FleetVersion>,
}

/// A step that the observer received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Called(Phase),
    Fault(&'static str),
    FellBack(Phase, FallbackCause),
}

impl FixedView {
    /// Returns a view of healthy workers of these roles, any shape allowed.
    pub(crate) fn of(roles: &[Role], policy: Arc<dyn Policy>) -> Self {
        let worker = |(at, role): (u32, &Role)| FixedWorker {
            worker: Arc::new(Worker::new(WorkerId(at), spec(at, *role))),
            serves: true,
            drains: false,
            eligibility: Eligibility::Healthy,
            knowledge: CacheKnowledge::Live,
        };
        Self {
            workers: (0..).zip(roles).map(worker).collect(),
            allowed: AllowedShapes {
                mixed: true,
                pair: true,
                alone: true,
            },
            policy: PolicyVersions::only(policy),
            has_phase_policies: false,
            fallback: Some(LeastLoaded::default()),
            now_us: 0,
            prompt_tokens: 500,
            fleet: None,
        }
    }

    /// Returns the candidates of a request, by their index.
    pub(crate) fn candidates(&self, tried: &[WorkerId]) -> Result<Vec<usize>, NoCandidate> {
        let eligible = EligibleSet::find(self, PlacementPart::Request, tried)?;
        let mut candidates = Candidates::default();
        candidates.list(self, tried, eligible);
        Ok(candidates.members)
    }

    /// Decides about a request; returns the workers that answer and prefill, and the steps.
    pub(crate) fn decide(&self) -> (Option<(usize, Option<usize>)>, Vec<Step>) {
        self.decide_with(&mut Candidates::default())
    }

    /// Decides with the buffers of earlier decisions.
    pub(crate) fn decide_with(
        &self,
        candidates: &mut Candidates,
    ) -> (Option<(usize, Option<usize>)>, Vec<Step>) {
        let mut steps = Vec::new();
        let mut context = DecisionContext {
            view: self,
            observer: &mut steps,
            state: AttemptState::default(),
            eligible: EligibleSet::find(self, PlacementPart::Request, &[]).unwrap(),
            candidates,
        };
        let outcome = context.decide(PlacementPart::Request);
        let sent = match outcome {
            Ok(PlacementOutcome::Dispatch(workers)) => Some((
                workers.answers.member,
                workers.prefills.map(|choice| choice.member),
            )),
            Ok(other) => panic!("{other:?}"),
            Err(()) => None,
        };
        (sent, steps)
    }
}

fn spec(at: u32, role: Role) -> WorkerSpec {
    WorkerSpec {
        role,
        ..WorkerSpec::mixed(format!("w{at}"), format!("http://w{at}"))
    }
}

/// Returns the answer that routes to a row.
pub(crate) fn route(row: u32, prefill: Option<u32>) -> Result<Verdict, PolicyFault> {
    Ok(Verdict::Route(Choice {
        row,
        prefill,
        score: 0.0,
    }))
}

/// A policy that decides as a function does.
pub(crate) struct Scripted<F> {
    plan: FeaturePlan,
    decide: F,
}

impl<F> std::fmt::Debug for Scripted<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

pub(crate) fn scripted<F>(columns: &[&str], decide: F) -> Arc<dyn Policy>
where
    F: Fn(&DecisionInput<'_>) -> Result<Verdict, PolicyFault> + Send + Sync + 'static,
{
    let plan = FeaturePlan::resolve(&[], columns).unwrap();
    Arc::new(Scripted { plan, decide })
}

impl<F> PolicyDescription for Scripted<F>
where
    F: Fn(&DecisionInput<'_>) -> Result<Verdict, PolicyFault> + Send + Sync,
{
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl<F> Policy for Scripted<F>
where
    F: Fn(&DecisionInput<'_>) -> Result<Verdict, PolicyFault> + Send + Sync,
{
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        (self.decide)(input)
    }
}

impl FleetView for FixedView {
    type Columns<'a> = FixedColumns;

    fn member_count(&self) -> usize {
        self.workers.len()
    }

    fn worker(&self, member: usize) -> &Arc<Worker> {
        &self.workers[member].worker
    }

    fn serves(&self, member: usize) -> bool {
        self.workers[member].serves
    }

    fn is_draining(&self, member: usize) -> bool {
        self.workers[member].drains
    }

    fn eligibility(&self, member: usize, _seed: u64) -> Eligibility {
        self.workers[member].eligibility
    }

    fn columns(&self, _members: &[usize], _matches: Option<&PrefixMatches>) -> FixedColumns {
        FixedColumns { now_us: self.now_us }
    }
}

impl VersionedFleet for FixedView {
    fn fleet_version(&self) -> Option<FleetVersion> {
        self.fleet
    }
}

pub(crate) struct FixedColumns {
    now_us: u64,
}

impl WorkerColumns for FixedColumns {
    fn age(&self, _member: usize) -> Duration {
        Duration::from_micros(2_900 + self.now_us)
    }

    fn failures(&self, _member: usize) -> u32 {
        u32::from(self.now_us % 3 == 1)
    }

    fn cache_blocks(&self, _member: usize) -> Option<u64> {
        None
    }

    fn report_clock_ms(&self, _member: usize) -> u64 {
        self.now_us
    }
}

/// Worker `n` holds `100 * n` tokens, of which ten are expected only.
pub(crate) struct FixedQueries(Vec<CacheKnowledge>);

impl QuerySource for FixedQueries {
    fn find_matches(&self, ids: &[WorkerId], matches: &mut PrefixMatches) {
        let look_up = |found: &mut Vec<WorkerMatch>| {
            found.extend(ids.iter().map(|id| WorkerMatch {
                device_tokens: 100 * id.0,
                host_tokens: 100 * id.0,
                any_tokens: 100 * id.0,
                expected_tokens: 10,
                rank: DpRank(0),
            }));
        };
        matches.replace(look_up, |row| self.0[ids[row].0 as usize]);
    }

    fn worker(&self, _id: WorkerId) -> Option<Arc<Worker>> {
        None
    }

    fn ahead(&self, _ids: &[WorkerId], _most: &[u32]) -> Vec<u32> {
        Vec::new()
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

impl RequestView for FixedView {
    type Queries = FixedQueries;

    fn identity(&self) -> RequestIdentity {
        RequestIdentity {
            seq: 1,
            run: RunNumber::default(),
            session: None,
        }
    }

    fn allowed(&self) -> AllowedShapes {
        self.allowed
    }

    fn values(&self) -> RequestValues {
        RequestValues {
            prompt_tokens: Some(self.prompt_tokens.into()),
            estimated_tokens: self.prompt_tokens,
            max_tokens: None,
            body_bytes: 2_000,
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

    fn queries(&self) -> FixedQueries {
        FixedQueries(self.workers.iter().map(|worker| worker.knowledge).collect())
    }
}

impl PoolView for FixedView {
    fn queued(&self) -> usize {
        0
    }

    fn queue_limit(&self) -> usize {
        1
    }

    fn hold_left(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn serving_workers(&self) -> usize {
        self.workers.iter().filter(|worker| worker.serves).count()
    }
}

impl PolicyView for FixedView {
    type NoAnswer = ();

    fn policy(&self, _phase: Phase) -> &PolicyVersions {
        &self.policy
    }

    fn has_phase_policies(&self) -> bool {
        self.has_phase_policies
    }

    fn fallback(&self) -> Result<&LeastLoaded, ()> {
        self.fallback.as_ref().ok_or(())
    }

    fn now_us(&self) -> u64 {
        self.now_us
    }
}

impl PlacementObserver<FixedView> for Vec<Step> {
    fn policy_called(&mut self, call: &PolicyCall<'_, FixedView>, policy: CalledPolicy<'_>) -> bool {
        if matches!(policy, CalledPolicy::Version(_)) {
            self.push(Step::Called(call.facts().phase));
        }
        false
    }

    fn call_failed(
        &mut self,
        _: &PolicyCall<'_, FixedView>,
        _: Chosen<'_>,
        fault: &CallFault,
        _: CircuitChange,
    ) {
        self.push(Step::Fault(fault.kind().as_str()));
    }

    fn fallback_used(&mut self, phase: Phase, cause: FallbackCause) {
        self.push(Step::FellBack(phase, cause));
    }
}
