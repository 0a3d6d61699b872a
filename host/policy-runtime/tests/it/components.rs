//! Builds components from text, and calls policies, for every test of this crate.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use policy_runtime::{EngineLimits, LoadError, PolicyEngine, PolicySettings, PolicyState, WasmPolicy};
use routing::{
    DecisionInput, DecisionQueries, Policy, PolicyFault, RequestFacts, Role, Tier, Verdict, Worker, WorkerId,
    WorkerSpec,
};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Returns the project's own contract.
pub(crate) fn contract() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/policy.wit");
    std::fs::read_to_string(path).unwrap()
}

/// Functions that a component may export besides the one that decides.
const OPTIONAL: [&str; 3] = ["events", "tick", "parameters"];

/// Returns a case of `tests/wat` as a component for the project's contract, with the optional interfaces that it has
/// functions of.
pub(crate) fn component(case: &str) -> Vec<u8> {
    let has = |interface: &&str| case.contains(&format!("conductor:policy/{interface}@"));
    let exports = OPTIONAL.into_iter().filter(has);
    let exports: String = exports.map(|interface| format!("export {interface}; ")).collect();
    let wit = format!("{}\nworld tested {{ include scheduler; {exports}}}", contract());
    component_of(&wit, "tested", &module(case))
}

/// Returns the text of a core module: the case, the default plan unless it has one, the prelude.
pub(crate) fn module(case: &str) -> String {
    let plan = if case.contains("#configure") {
        ""
    } else {
        include_str!("../wat/plan.wat")
    };
    format!("(module {case} {plan} {})", include_str!("../wat/prelude.wat"))
}

/// Returns any module as a component for any contract with a world `scheduler`.
pub(crate) fn component_for(wit: &str, module: &str) -> Vec<u8> {
    component_of(wit, "scheduler", module)
}

/// Returns a case that scores as a component for the project's contract.
pub(crate) fn scorer(case: &str) -> Vec<u8> {
    component_of(&contract(), "scorer", &module(case))
}

/// Returns a module as a component for a world of a contract.
pub(crate) fn component_of(wit: &str, world: &str, module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_source("policy.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    let mut bytes = wat::parse_str(module).unwrap();
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8).unwrap();
    let encoder = ComponentEncoder::default();
    encoder.module(&bytes).unwrap().encode().unwrap()
}

/// Returns an engine with room for a few instances.
pub(crate) fn engine() -> PolicyEngine {
    PolicyEngine::new(EngineLimits {
        instances_per_policy: 8,
        instances: 16,
        memory_bytes: 64 << 20,
    })
    .unwrap()
}

/// Returns the default settings, with a wall limit that no call reaches, however slow the machine is.
pub(crate) fn settings() -> PolicySettings {
    PolicySettings {
        wall_limit: Duration::from_hours(1),
        ..PolicySettings::default()
    }
}

/// Loads with [`settings`] and a new state.
pub(crate) fn load(engine: &PolicyEngine, bytes: &[u8]) -> Result<WasmPolicy, LoadError> {
    engine.load("tested", bytes, &settings(), Arc::default())
}

/// Loads a case that must load.
#[track_caller]
pub(crate) fn loaded(engine: &PolicyEngine, case: &str) -> WasmPolicy {
    load(engine, &component(case)).unwrap()
}

/// Decides in the same way over a given state.
#[track_caller]
pub(crate) fn loaded_over(engine: &PolicyEngine, case: &str, state: &Arc<PolicyState>) -> WasmPolicy {
    engine
        .load("tested", &component(case), &settings(), Arc::clone(state))
        .unwrap()
}

/// Decides request `seq` over candidates that have one number each.
pub(crate) fn decide(policy: &WasmPolicy, seq: u64, numbers: &[f64]) -> Result<Verdict, PolicyFault> {
    let queries: Arc<dyn DecisionQueries> = Arc::new(Answers);
    decide_with(policy, seq, numbers, &queries)
}

/// Decides with the given answers to the policy's queries.
pub(crate) fn decide_with(
    policy: &WasmPolicy,
    seq: u64,
    numbers: &[f64],
    queries: &Arc<dyn DecisionQueries>,
) -> Result<Verdict, PolicyFault> {
    let ids: Vec<_> = (7..).map(WorkerId).take(numbers.len()).collect();
    let request = RequestFacts {
        now_us: 123_456,
        ..RequestFacts::of_seq(seq)
    };
    policy.decide(&DecisionInput {
        request: &request,
        ids: &ids,
        numbers,
        queries,
    })
}

/// Returns the row and score of a verdict that must be a route.
#[track_caller]
pub(crate) fn route(verdict: Result<Verdict, PolicyFault>) -> (u32, f64) {
    match verdict {
        Ok(Verdict::Route(choice)) => (choice.row, choice.score),
        other => panic!("not a route: {other:?}"),
    }
}

/// Fixed answers, with a worker 7 called `seven`.
pub(crate) struct Answers;

impl DecisionQueries for Answers {
    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        let spec = WorkerSpec {
            role: Role::Decode,
            labels: BTreeMap::from([("zone".into(), "a".into())]),
            ..WorkerSpec::mixed("seven", "http://seven")
        };
        (id == WorkerId(7)).then(|| Arc::new(Worker::new(id, spec)))
    }

    fn matched(&self, tier: Tier) -> Vec<u32> {
        if tier == Tier::Host {
            vec![16, 48]
        } else {
            vec![0, 0]
        }
    }

    fn holders(&self, tokens: u32) -> u32 {
        tokens / 16
    }

    fn header(&self, name: &str) -> Option<String> {
        match name {
            "x-tenant" => Some("acme".to_owned()),
            "Authorization" => Some("a secret".to_owned()),
            _ => None,
        }
    }

    fn model(&self) -> &str {
        "llama"
    }

    fn path(&self) -> &str {
        "/v1/completions"
    }
}
