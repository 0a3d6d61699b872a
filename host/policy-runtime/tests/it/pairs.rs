//! The shipped policy for disaggregated pools names a pair, through the runtime and the check of its verdict.

use std::path::Path;
use std::sync::Arc;

use policy_runtime::WasmPolicy;
use routing::{
    CandidateFeature, Decision, DecisionInput, DecisionQueries, Offer, Policy, PolicyDescription,
    RequestFacts, RequestFeature, Role, Route, WorkerId, check,
};

use crate::components::{Answers, engine, load};

const ROLES: [Role; 4] = [Role::Prefill, Role::Prefill, Role::Decode, Role::Decode];

fn pd_pairing() -> WasmPolicy {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/prebuilt/pd-pairing.wasm");
    load(&engine(), &std::fs::read(path).unwrap()).unwrap()
}

/// Returns the route of a prompt of 8,000 tokens among idle workers that hold so much of it, where decode workers may
/// be alone.
fn placed(policy: &WasmPolicy, held: [f64; 4]) -> Route {
    let plan = policy.plan();
    assert!(plan.pairs());
    let mut numbers: Vec<f64> = plan
        .request()
        .iter()
        .map(|feature| match feature {
            RequestFeature::PromptTokens => 8_000.0,
            RequestFeature::DecodeAlone => 1.0,
            _ => 0.0,
        })
        .collect();
    for (role, held) in ROLES.iter().zip(held) {
        numbers.extend(plan.candidate().iter().map(|feature| match feature {
            CandidateFeature::Role => role.number(),
            CandidateFeature::Weight => 1.0,
            CandidateFeature::PrefixDevice | CandidateFeature::PrefixHost | CandidateFeature::PrefixAny => {
                held
            }
            _ => 0.0,
        }));
    }
    let request = RequestFacts::of_seq(1);
    let queries: Arc<dyn DecisionQueries> = Arc::new(Answers);
    let verdict = policy.decide(&DecisionInput {
        request: &request,
        ids: &[7, 8, 9, 10].map(WorkerId),
        numbers: &numbers,
        queries: &queries,
    });
    let offer = Offer::Pair {
        roles: &ROLES,
        alone: true,
    };
    match check(verdict.unwrap(), offer) {
        Ok(Decision::Route(route)) => route,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_pair_follows_the_caches_of_both_pools() {
    let policy = pd_pairing();
    let route = placed(&policy, [0.0, 4_000.0, 3_000.0, 0.0]);
    assert_eq!((route.prefill(), route.row()), (Some(1), 2));
    // 128 for the request, 4,000 to compute and 0.04 each for 5,000 to transfer.
    assert!((route.score() + 4_328.0).abs() < 1e-6, "{route:?}");
}

#[test]
fn one_worker_does_it_all_where_it_holds_nearly_all() {
    let policy = pd_pairing();
    let route = placed(&policy, [0.0, 4_000.0, 0.0, 7_000.0]);
    assert_eq!((route.prefill(), route.row()), (None, 3));
}
