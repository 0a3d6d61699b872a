//! One policy twice, as the shipped component and compiled natively, over the same fleet: the subject of the benches,
//! and of the test that both give the same answers.

mod pipeline;
mod placed;

use std::path::Path;
use std::sync::Arc;

use conductor_policy_sdk::testing::Scenario;
use conductor_policy_sdk::{Configured, Policy as NativePolicy, Request, Role};
use policy_runtime::{EngineLimits, PolicyEngine, PolicySettings, WasmPolicy};
use routing::{
    DecisionInput, DecisionQueries, NoAnswers, Policy, PolicyFault, RequestFacts, Transcript, Verdict,
    WorkerId,
};

pub use self::pipeline::PipelineCrossing;
pub use self::placed::PlacedRequests;

/// A component with its input.
pub struct Crossing {
    policy: WasmPolicy,
    ids: Vec<WorkerId>,
    numbers: Vec<f64>,
    queries: Arc<dyn DecisionQueries>,
}

/// A policy in both forms and a fleet for it to choose from.
pub struct Contest<P> {
    native: Configured<P>,
    fleet: Scenario,
    crossing: Crossing,
}

impl Crossing {
    /// Loads a component that uses `columns` numbers a candidate, and none of the request.
    ///
    /// # Panics
    /// When it is not taken: there is nothing to measure then.
    #[must_use]
    pub fn new(component: &[u8], columns: usize, candidates: usize) -> Self {
        let numbers = (0..columns * candidates).map(|number| number as f64).collect();
        Self::over(load("boundary", component), numbers, candidates)
    }

    /// Creates the input of `policy` for `candidates` candidates, in the layout of its plan.
    #[must_use]
    pub fn over(policy: WasmPolicy, numbers: Vec<f64>, candidates: usize) -> Self {
        Self {
            policy,
            ids: (0..).map(WorkerId).take(candidates).collect(),
            numbers,
            queries: Arc::new(NoAnswers),
        }
    }

    /// Calls the component as the router does.
    ///
    /// # Errors
    /// The component's fault.
    pub fn call(&self, seq: u64) -> Result<Verdict, PolicyFault> {
        self.with_input(seq, |input| self.policy.decide(input))
    }

    /// Calls the component as the router does for a recorded request.
    ///
    /// # Errors
    /// The component's fault.
    pub fn call_recording(&self, seq: u64) -> (Result<Verdict, PolicyFault>, Transcript) {
        self.with_input(seq, |input| self.policy.decide_recording(input))
    }

    fn with_input<T>(&self, seq: u64, call: impl FnOnce(&DecisionInput<'_>) -> T) -> T {
        let request = RequestFacts {
            session: Some(seq),
            now_us: seq,
            ..RequestFacts::of_seq(seq)
        };
        call(&DecisionInput {
            request: &request,
            ids: &self.ids,
            numbers: &self.numbers,
            queries: &self.queries,
        })
    }
}

impl<P: NativePolicy> Contest<P> {
    /// Loads `policies/prebuilt/<name>.wasm` and makes up a fleet of that many candidates.
    ///
    /// # Panics
    /// When the component is missing or is not taken.
    #[must_use]
    pub fn new(candidates: usize) -> Self {
        let native = Configured::<P>::new("{}").expect("every parameter has a default");
        let fleet = fleet(candidates);
        let numbers = fleet.numbers(native.plan());
        Self {
            crossing: Crossing::over(load(P::NAME, &prebuilt(P::NAME)), numbers, candidates),
            native,
            fleet,
        }
    }

    /// Calls the component.
    ///
    /// # Errors
    /// The component's fault.
    pub fn call_wasm(&self, seq: u64) -> Result<Verdict, PolicyFault> {
        self.crossing.call(seq)
    }

    /// Calls the component and records its host calls.
    ///
    /// # Errors
    /// The component's fault.
    pub fn call_recording(&self, seq: u64) -> (Result<Verdict, PolicyFault>, Transcript) {
        self.crossing.call_recording(seq)
    }

    /// Calls the native policy.
    #[must_use]
    pub fn call_native(&self, seq: u64) -> conductor_policy_sdk::Verdict {
        let request = Request {
            seq,
            session: Some(seq),
            ..Request::default()
        };
        let numbers = &self.crossing.numbers;
        self.native
            .schedule(request, self.fleet.ids(), numbers, &self.fleet)
    }
}

/// Returns a fleet with evenly spread loads and cache matches, all workers different: a third each is prefill, decode
/// or mixed, for policies that use roles.
fn fleet(candidates: usize) -> Scenario {
    let name = |worker: usize| format!("worker-{worker}");
    let mut fleet = Scenario::new((0..candidates).map(name));
    fleet
        .request("request.prompt-tokens", 2048.0)
        .request("request.body-bytes", 9000.0);
    for worker in 0..candidates {
        let spread = |step: usize, most: usize| (worker * step % most) as f64;
        let name = name(worker);
        fleet
            .set(&name, "load.requests", spread(7919, 23))
            .set(&name, "load.decoding", spread(31, 7))
            .set(&name, "load.prefill-tokens", spread(104_729, 30_011))
            .role(&name, [Role::Mixed, Role::Prefill, Role::Decode][worker % 3])
            .holds(&name, 16.0 * spread(17, 129));
    }
    fleet
}

fn prebuilt(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/prebuilt");
    let path = folder.join(format!("{name}.wasm"));
    std::fs::read(&path).expect("the component is in policies/prebuilt (else: cargo prebuild)")
}

fn load(name: &str, component: &[u8]) -> WasmPolicy {
    let engine = PolicyEngine::new(EngineLimits::default()).expect("this machine runs WebAssembly");
    engine
        .load(name, component, &PolicySettings::default(), Arc::default())
        .expect("the component is a policy")
}

#[cfg(test)]
mod tests {
    use cache_aware::CacheAware;
    use pd_pairing::PdPairing;
    use round_robin::RoundRobin;
    use ttft_queue::TtftQueue;

    use super::*;

    /// Checks that the component and the native policy agree on a hundred requests.
    #[track_caller]
    fn check<P: NativePolicy>(candidates: usize) {
        let contest = Contest::<P>::new(candidates);
        for seq in 1..=100 {
            let Ok(Verdict::Route(wasm)) = contest.call_wasm(seq) else {
                panic!("request {seq}: no route")
            };
            let (row, prefill, score) = match contest.call_native(seq) {
                conductor_policy_sdk::Verdict::Route { row, score } => (row, None, score),
                conductor_policy_sdk::Verdict::Pair { row, prefill, score } => (row, Some(prefill), score),
                other => panic!("request {seq}: {other:?}"),
            };
            assert_eq!(wasm.row as usize, row, "request {seq}");
            assert_eq!(wasm.prefill.map(|row| row as usize), prefill, "request {seq}");
            assert!(wasm.score == score || (wasm.score.is_nan() && score.is_nan()));
        }
    }

    #[test]
    fn a_component_answers_as_the_same_policy_does_natively() {
        for candidates in [1, 8, 300] {
            check::<CacheAware>(candidates);
            check::<PdPairing>(candidates);
            check::<RoundRobin>(candidates);
            check::<TtftQueue>(candidates);
        }
    }
}
