//! Components that score: by themselves they decide for the highest, and a pipeline has their numbers.

use std::sync::Arc;

use policy_runtime::{Divergence, LoadError, WasmPolicy};
use routing::{
    DecisionInput, DecisionQueries, FaultKind, NoAnswers, Policy, PolicyFault, RequestFacts, Transcript,
    Verdict, WorkerId, scores_singly,
};

use crate::components::{decide, engine, load, loaded, route, scorer};

const SCORER: &str = include_str!("../wat/scorer.wat");

fn loaded_scorer() -> WasmPolicy {
    load(&engine(), &scorer(SCORER)).unwrap()
}

fn call<T>(seq: u64, numbers: &[f64], call: impl FnOnce(&DecisionInput<'_>) -> T) -> T {
    let ids: Vec<_> = (7..).map(WorkerId).take(numbers.len()).collect();
    let request = RequestFacts {
        now_us: 123_456,
        ..RequestFacts::of_seq(seq)
    };
    call(&DecisionInput {
        request: &request,
        ids: &ids,
        numbers,
        queries: &(Arc::new(NoAnswers) as Arc<dyn DecisionQueries>),
    })
}

fn score(policy: &WasmPolicy, seq: u64, numbers: &[f64]) -> Result<Vec<f64>, PolicyFault> {
    let mut scores = vec![9.0; numbers.len()];
    let scorer = policy.scorer().unwrap();
    call(seq, numbers, |input| scorer.score(input, &mut scores))?;
    Ok(scores)
}

#[test]
fn gives_one_number_a_candidate_and_by_itself_decides_for_the_highest() {
    let policy = loaded_scorer();
    assert!(scores_singly(&policy));
    assert_eq!(score(&policy, 1, &[5.0, 2.0, 7.0]), Ok(vec![-5.0, -2.0, -7.0]));
    assert_eq!(route(decide(&policy, 1, &[5.0, 2.0, 7.0])), (1, -2.0));
    assert_eq!(decide(&policy, 1003, &[5.0, 2.0]), Ok(Verdict::Pass));
    assert!(
        score(&policy, 1003, &[5.0, 2.0])
            .unwrap()
            .iter()
            .all(|score| score.is_nan())
    );
}

#[test]
fn one_that_traps_or_gives_too_few_fails_that_call_alone_and_is_counted() {
    let policy = loaded_scorer();
    for (seq, kind) in [(1001, FaultKind::Trap), (1002, FaultKind::InvalidVerdict)] {
        let fault = score(&policy, seq, &[5.0, 2.0]).unwrap_err();
        assert_eq!((fault.kind, &*fault.policy), (kind, "tested"), "{fault}");
        assert_eq!(policy.stats().faults(kind), 1);
        assert_eq!(score(&policy, 1, &[5.0, 2.0]), Ok(vec![-5.0, -2.0]));
    }
    assert_eq!(policy.stats().calls, 4);
}

#[test]
fn scores_repeat_from_their_record() {
    let policy = loaded_scorer();
    let score = || {
        let mut scores = vec![9.0; 2];
        let scorer = policy.scorer().unwrap();
        let (answer, transcript) = call(1004, &[5.0, 2.0], |input| {
            scorer.score_recording(input, &mut scores)
        });
        answer.unwrap();
        (scores, transcript)
    };
    let (first, transcript) = score();
    assert_eq!(first, [1.0, -2.0]);
    assert_eq!(score().0, [2.0, -2.0], "its state goes on");
    let again = |transcript: &Transcript| {
        call(1004, &[5.0, 2.0], |input| {
            policy.score_replaying(input, transcript)
        })
    };
    assert_eq!(again(&transcript), Ok(Ok(first)));
    let more = again(&Transcript::default()).unwrap_err();
    assert!(matches!(more, Divergence::More { number: 1, .. }), "{more}");
}

#[test]
fn one_that_wants_to_place_pairs_is_refused_with_the_cure() {
    // 11 bytes at 160 in place of `load.requests`.
    let pairing = SCORER.to_owned()
        + r#"(data (i32.const 160) "worker.role")
             (data (i32.const 192) "\00\00\00\00\00\00\00\00\00\00\00\00\d8\00\00\00\01\00\00\00\00\00\00\00\a0\00\00\00\0b\00\00\00")
             (func (export "conductor:policy/policy@0.1.0#configure") (param i32 i32) (result i32) (i32.const 192))"#;
    let refused = load(&engine(), &scorer(&pairing)).unwrap_err();
    assert!(matches!(refused, LoadError::ScorerOfPairs), "{refused}");
    assert!(refused.to_string().contains("`request.phase`"), "{refused}");
}

#[test]
fn one_that_only_schedules_is_no_scorer() {
    let policy = loaded(&engine(), include_str!("../wat/least.wat"));
    assert!(policy.scorer().is_none() && !scores_singly(&policy));
}
