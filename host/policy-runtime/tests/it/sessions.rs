//! Sessions stick to their workers, by the rows of the call.

use std::sync::Arc;

use policy_runtime::{PolicyState, WasmPolicy};
use routing::{
    DecisionInput, DecisionQueries, HostCall, HostResult, NoAnswers, Policy, PolicyDescription, RequestFacts,
    WorkerId,
};

use crate::components::{engine, loaded_over, route};

const STICKS: &str = include_str!("../wat/sticks.wat");

/// Candidates, and nothing else.
struct Only(Vec<WorkerId>);

impl DecisionQueries for Only {
    fn candidates(&self) -> &[WorkerId] {
        &self.0
    }
}

fn facts(seq: u64, session: Option<u64>, now_us: u64) -> RequestFacts {
    RequestFacts {
        session,
        now_us,
        ..RequestFacts::of_seq(seq)
    }
}

fn call<T>(
    policy: &WasmPolicy,
    request: &RequestFacts,
    ids: &[u32],
    call: impl FnOnce(&DecisionInput<'_>) -> T,
) -> T {
    let ids: Vec<_> = ids.iter().copied().map(WorkerId).collect();
    call(&DecisionInput {
        request,
        ids: &ids,
        numbers: &vec![0.0; ids.len() * policy.plan().candidate().len()],
        queries: &(Arc::new(Only(ids.clone())) as Arc<dyn DecisionQueries>),
    })
}

fn row(policy: &WasmPolicy, request: &RequestFacts, ids: &[u32]) -> (u32, f64) {
    route(call(policy, request, ids, |input| policy.decide(input)))
}

#[test]
fn a_session_follows_its_worker_through_other_rows_until_its_time_is_over() {
    let state = Arc::<PolicyState>::default();
    let policy = loaded_over(&engine(), STICKS, &state);
    assert_eq!(state.sessions().count(), 0, "a trial moves nothing");
    let at = |seconds: u64| facts(1, Some(4), seconds * 1_000_000);
    assert_eq!(row(&policy, &at(0), &[7, 8, 9]), (1, 0.0));
    assert_eq!(row(&policy, &at(1), &[9, 7, 8]), (2, 1.0));
    assert_eq!(row(&policy, &at(59), &[8]), (0, 1.0));
    assert_eq!(row(&policy, &at(60), &[7, 8]), (1, 0.0), "remembered again");
    // Its worker is no candidate.
    assert_eq!(row(&policy, &at(61), &[7, 9]), (1, 0.0));
    assert_eq!(row(&policy, &at(61), &[9, 7, 8]), (0, 1.0));
}

#[test]
fn a_session_is_forgotten_and_without_one_nothing_is_remembered() {
    let state = Arc::<PolicyState>::default();
    let engine = engine();
    let policy = loaded_over(&engine, STICKS, &state);
    row(&policy, &facts(1, Some(4), 0), &[7, 8]);
    row(&policy, &facts(2, None, 0), &[7, 8]);
    assert_eq!(state.sessions().count(), 1);
    // Over a swap it is the same.
    let swapped = loaded_over(&engine, &format!("{STICKS} (func $other)"), &state);
    assert_eq!(row(&swapped, &facts(3, Some(4), 0), &[8, 7]), (0, 1.0));
    row(&swapped, &facts(9, Some(4), 0), &[8, 7]);
    assert_eq!(state.sessions().count(), 0);
}

#[test]
fn a_recalled_row_is_recorded_and_replayed_without_a_memory() {
    let state = Arc::<PolicyState>::default();
    let engine = engine();
    let policy = loaded_over(&engine, STICKS, &state);
    let request = facts(1, Some(4), 0);
    row(&policy, &request, &[7, 8]);
    let (verdict, transcript) = call(&policy, &request, &[8, 7], |input| policy.decide_recording(input));
    assert_eq!(route(verdict), (0, 1.0));
    let recorded = &transcript.calls()[0];
    assert_eq!(
        (&recorded.call, &recorded.result),
        (&HostCall::SessionRecall, &HostResult::Row(Some(0)))
    );

    let elsewhere = loaded_over(&engine, STICKS, &Arc::default());
    let ids = [WorkerId(8), WorkerId(7)];
    let replayed = elsewhere.decide_replaying(
        &DecisionInput {
            request: &request,
            ids: &ids,
            numbers: &vec![0.0; ids.len() * policy.plan().candidate().len()],
            queries: &(Arc::new(NoAnswers) as Arc<dyn DecisionQueries>),
        },
        &transcript,
    );
    assert_eq!(route(replayed.unwrap()), (0, 1.0));
}
