//! A recorded decision is repeated from its record alone, bit for bit, or reported as another one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::components::{Answers, component, engine, load, loaded, route};
use policy_runtime::{Divergence, PolicyEngine, PolicySettings, PolicyState, WasmPolicy};
use routing::{
    DecisionInput, DecisionQueries, FaultKind, HostCall, HostResult, NoAnswers, Policy, PolicyDescription,
    PolicyFault, RecordedCall, RequestFacts, Tier, Transcript, Verdict, WorkerId,
};

const QUESTIONS: &str = include_str!("../wat/questions.wat");
const GAMBLER: &str = include_str!("../wat/gambler.wat");

fn call<T>(
    policy: &WasmPolicy,
    seq: u64,
    queries: impl DecisionQueries + 'static,
    call: impl FnOnce(&DecisionInput<'_>) -> T,
) -> T {
    let ids = [WorkerId(7), WorkerId(8)];
    let request = RequestFacts {
        session: Some(3),
        now_us: 123_456,
        ..RequestFacts::of_seq(seq)
    };
    call(&DecisionInput {
        request: &request,
        ids: &ids,
        numbers: &vec![0.0; ids.len() * policy.plan().candidate().len()],
        queries: &(Arc::new(queries) as Arc<dyn DecisionQueries>),
    })
}

/// Returns the gambler over a state, with all the time that a busy machine takes.
fn gambler(engine: &PolicyEngine, state: &Arc<PolicyState>) -> WasmPolicy {
    let settings = PolicySettings {
        cpu_budget: Duration::from_secs(10),
        wall_limit: Duration::from_secs(10),
        ..PolicySettings::default()
    };
    let policy = engine.load("tested", &component(GAMBLER), &settings, Arc::clone(state));
    policy.unwrap()
}

fn decide(policy: &WasmPolicy, seq: u64) -> (Result<Verdict, PolicyFault>, Transcript) {
    call(policy, seq, Answers, |input| policy.decide_recording(input))
}

fn replayed(
    policy: &WasmPolicy,
    seq: u64,
    transcript: &Transcript,
) -> Result<Result<Verdict, PolicyFault>, Divergence> {
    call(policy, seq, NoAnswers, |input| {
        policy.decide_replaying(input, transcript)
    })
}

/// Returns row and bits of the score.
fn bits(verdict: Result<Verdict, PolicyFault>) -> (u32, u64) {
    let (row, score) = route(verdict);
    (row, score.to_bits())
}

#[test]
fn every_import_is_recorded_and_its_result_replayed() {
    let engine = engine();
    let (live, again) = (loaded(&engine, QUESTIONS), loaded(&engine, QUESTIONS));
    let facts = [2001, 2002];
    for seq in 2001..=2009 {
        let (verdict, transcript) = decide(&live, seq);
        let expected = usize::from(!facts.contains(&seq));
        assert_eq!(transcript.calls().len(), expected, "{seq}: {transcript:?}");
        assert_eq!(
            bits(replayed(&again, seq, &transcript).unwrap()),
            bits(verdict),
            "{seq}"
        );
    }
}

#[test]
fn a_recorded_call_has_its_arguments_and_its_result() {
    let (_, transcript) = decide(&loaded(&engine(), QUESTIONS), 2005);
    let matched = RecordedCall {
        call: HostCall::Matched(Tier::Host),
        result: HostResult::Tokens(vec![16, 48]),
    };
    assert_eq!(transcript, Transcript::of(vec![matched], false));
    let (_, transcript) = decide(&loaded(&engine(), QUESTIONS), 2006);
    assert_eq!(transcript.calls()[0].result, HostResult::Text(None), "a secret");
}

#[test]
fn chance_and_memory_repeat_in_any_order_without_being_touched() {
    let engine = engine();
    let state = Arc::<PolicyState>::default();
    let live = gambler(&engine, &state);
    let made: Vec<_> = (1..=200).map(|seq| (seq, decide(&live, seq))).collect();
    let remembered = state.get("turn");
    for policy in [&live, &gambler(&engine, &Arc::default())] {
        for (seq, (verdict, transcript)) in made.iter().rev() {
            let again = replayed(policy, *seq, transcript).unwrap();
            assert_eq!(bits(again), bits(verdict.clone()));
        }
    }
    assert_eq!(state.get("turn"), remembered);
    let scores: Vec<_> = made
        .iter()
        .map(|(_, (verdict, _))| bits(verdict.clone()).1)
        .collect();
    assert!(scores.iter().all(|bits| f64::from_bits(*bits).is_nan()));
    assert!(
        scores.windows(2).all(|pair| pair[0] != pair[1]),
        "payloads of their own"
    );
}

#[test]
fn round_robin_takes_the_turn_it_took() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/prebuilt/round-robin.wasm");
    let bytes = std::fs::read(file).unwrap();
    let engine = engine();
    let live = load(&engine, &bytes).unwrap();
    let made: Vec<_> = (1..=9).map(|seq| (seq, decide(&live, seq))).collect();
    let again = load(&engine, &bytes).unwrap();
    assert_eq!(live.origin(), again.origin());
    for (seq, (verdict, transcript)) in made.into_iter().rev() {
        assert_eq!(transcript.calls().len(), 1);
        let replayed = replayed(&again, seq, &transcript).unwrap();
        assert_eq!(bits(replayed), bits(verdict));
    }
}

#[test]
fn a_trap_comes_again_after_the_same_questions() {
    let engine = engine();
    let (verdict, transcript) = decide(&gambler(&engine, &Arc::default()), 3002);
    assert_eq!(transcript.calls().len(), 1);
    let again = replayed(&gambler(&engine, &Arc::default()), 3002, &transcript).unwrap();
    assert_eq!(again.as_ref().unwrap_err().kind, FaultKind::Trap);
    assert_eq!(again, verdict);
}

#[test]
fn other_questions_are_another_decision() {
    let engine = engine();
    let policy = gambler(&engine, &Arc::default());
    let (_, three) = decide(&policy, 3);
    let add = HostCall::StateAdd("turn".to_owned(), 1);
    let number = 3;
    assert_eq!(
        replayed(&policy, 2, &three),
        Err(Divergence::Fewer {
            number,
            recorded: add.clone()
        })
    );
    let more = Divergence::More {
        number: 4,
        called: add.clone(),
    };
    assert_eq!(replayed(&policy, 4, &three), Err(more));
    let other = Divergence::Other {
        number: 1,
        called: HostCall::Model,
        recorded: add,
    };
    assert_eq!(
        other.to_string(),
        r#"replay host call 1: it called inspect.model(), but state.add("turn", 1) is recorded"#
    );
    assert_eq!(replayed(&policy, 3001, &three), Err(other));
    assert!(
        replayed(&policy, 3, &three).is_ok(),
        "and the instance is as good as before"
    );
}

#[test]
fn a_transcript_that_was_cut_is_not_repeated() {
    let policy = gambler(&engine(), &Arc::default());
    let (verdict, transcript) = decide(&policy, 600);
    verdict.unwrap();
    assert!(transcript.is_truncated());
    assert_eq!(replayed(&policy, 600, &transcript), Err(Divergence::Truncated));
}
