//! Tests of decisions: a loaded policy decides, queries the host, and is served again after any fault.

use std::sync::Arc;
use std::time::Duration;

use crate::components::{
    Answers, component, component_of, contract, decide, decide_with, engine, load, loaded, loaded_over,
    module, route, settings,
};
use policy_runtime::{PolicySettings, PolicyState};
use routing::{
    DecisionQueries, FaultKind, Hold, InvalidVerdict, Offer, PolicyDescription, Rejection, Verdict, check,
};
use rustix::time::{ClockId, clock_gettime};

const LEAST: &str = include_str!("../wat/least.wat");
const BEHAVIOURS: &str = include_str!("../wat/behaviours.wat");
const QUESTIONS: &str = include_str!("../wat/questions.wat");
const FICKLE: &str = include_str!("../wat/fickle.wat");

#[test]
fn routes_to_the_row_the_component_chose() {
    let policy = loaded(&engine(), LEAST);
    assert_eq!(policy.name(), "tested");
    assert_eq!(policy.manifest().name, "test-policy");
    assert_eq!(policy.manifest().version, "1.2.3");
    assert_eq!(policy.sha256().len(), 64);
    assert_eq!(policy.plan().candidate().len(), 1);
    assert_eq!(route(decide(&policy, 1, &[3.0, f64::NAN, 1.0, 2.0])), (2, -1.0));
    let many: Vec<_> = (0..5000).map(|row| f64::from(5000 - row)).collect();
    assert_eq!(route(decide(&policy, 2, &many)), (4999, -1.0));
    assert_eq!(route(decide(&policy, 3, &[1.0])), (0, -1.0));
}

#[test]
fn every_kind_of_verdict_arrives() {
    let policy = loaded(&engine(), BEHAVIOURS);
    let hold = Hold {
        order: 2.5,
        ask_again_ms: 40,
        waits_for: None,
    };
    let rejection = Rejection {
        status: 429,
        retry_after_ms: 1500,
        reason: "test-policy".to_owned(),
    };
    assert_eq!(decide(&policy, 1010, &[0.0]), Ok(Verdict::Queue(hold)));
    assert_eq!(decide(&policy, 1011, &[0.0]), Ok(Verdict::Reject(rejection)));
    assert_eq!(decide(&policy, 1012, &[0.0]), Ok(Verdict::Pass));
}

#[test]
fn a_row_that_was_not_offered_is_caught_by_the_check() {
    let policy = loaded(&engine(), BEHAVIOURS);
    let verdict = decide(&policy, 1007, &[0.0, 0.0]).unwrap();
    let refused = InvalidVerdict::RowOutOfRange {
        row: 99,
        candidates: 2,
    };
    assert_eq!(check(verdict, Offer::One { candidates: 2 }), Err(refused));
}

/// Checks that request `seq` fails in the given way, and that both that policy and another one answer the next request.
#[track_caller]
fn check_fault(seq: u64, kind: FaultKind, detail: &str) {
    let engine = engine();
    let faulty = loaded(&engine, BEHAVIOURS);
    let good = loaded(&engine, LEAST);
    for round in 1..=3 {
        let fault = decide(&faulty, seq, &[0.0]).unwrap_err();
        assert_eq!((fault.kind, &*fault.policy), (kind, "tested"), "{fault}");
        assert!(fault.detail.contains(detail), "{fault}");
        assert!(!fault.detail.contains('\n'), "{fault}");
        assert_eq!(route(decide(&good, 1, &[1.0, 0.0])), (1, 0.0));
        assert_eq!(route(decide(&faulty, 1, &[0.0])), (0, 1.0));
        assert_eq!(faulty.stats().faults(kind), round);
    }
    assert_eq!(faulty.stats().calls, 6);
    assert_eq!(faulty.stats().instances, 4);
    assert_eq!(good.stats().instances, 1);
}

#[test]
fn a_trap_is_survived_and_reports_where_it_was() {
    check_fault(
        1001,
        FaultKind::Trap,
        "`unreachable` instruction executed in crash",
    );
}

#[test]
fn a_manifest_cannot_make_a_terminal_obey() {
    let hostile = module(LEAST).replace("test-policy", "tes\\1b[31mpol");
    let wit = format!("{}\nworld tested {{ include scheduler; }}", contract());
    let policy = load(&engine(), &component_of(&wit, "tested", &hostile)).unwrap();
    assert_eq!(policy.manifest().name, "tes [31mpol");
}

#[test]
fn a_faults_text_is_one_short_line_whatever_the_functions_are_called() {
    for (length, shown) in [(20, 20), (70_000, 256)] {
        let name = format!("\\1b[31m\\0a{}", "n".repeat(length));
        let case = BEHAVIOURS.replace("(func $crash", &format!("(func $crash (@name \"{name}\")"));
        let fault = decide(&loaded(&engine(), &case), 1001, &[0.0]).unwrap_err();
        assert!(fault.detail.len() <= 1024, "{}", fault.detail.len());
        assert!(!fault.detail.contains(char::is_control), "{fault}");
        let kept = fault.detail.matches('n').count();
        assert!(kept >= shown - 10, "{fault}");
    }
}

#[test]
fn an_endless_loop_is_ended_by_its_cpu_budget() {
    check_fault(1002, FaultKind::Deadline, "of CPU time");
}

#[test]
fn a_memory_bomb_meets_its_limit() {
    check_fault(1003, FaultKind::OutOfMemory, "unreachable");
}

#[test]
fn endless_recursion_exhausts_only_its_own_stack() {
    check_fault(1004, FaultKind::StackOverflow, "call stack exhausted");
}

#[test]
fn a_verdict_that_cannot_be_read_is_invalid() {
    check_fault(1005, FaultKind::InvalidVerdict, "discriminant");
    check_fault(1006, FaultKind::InvalidVerdict, "out of bounds");
}

/// Returns the CPU time of this thread, which a busy machine does not lengthen.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn an_endless_loop_is_ended_soon() {
    let policy = loaded(&engine(), BEHAVIOURS);
    let start = cpu_time();
    decide(&policy, 1002, &[0.0]).unwrap_err();
    let took = cpu_time().saturating_sub(start);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_wall_limit_ends_a_call_within_its_cpu_budget() {
    let settings = PolicySettings {
        cpu_budget: Duration::from_secs(60),
        wall_limit: Duration::from_millis(5),
        ..PolicySettings::default()
    };
    let policy = engine()
        .load("tested", &component(BEHAVIOURS), &settings, Arc::default())
        .unwrap();
    let fault = decide(&policy, 1002, &[0.0]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Deadline);
    assert!(fault.detail.contains("the limit is 5ms"), "{fault}");
}

/// Returns the answer that the policy got to the query of that number.
fn query_result(seq: u64) -> f64 {
    route(decide(&loaded(&engine(), QUESTIONS), seq, &[0.0, 0.0])).1
}

#[test]
fn questions_are_answered_from_the_request() {
    assert_eq!(query_result(2002), 123_456.0);
    assert_eq!(query_result(2004), 2.0);
    assert_eq!(query_result(2005), 48.0);
    assert_eq!(query_result(2007), 4.0);
    assert_eq!(query_result(2008), 5.0);
    assert_eq!(query_result(2009), 5.0);
}

#[test]
fn secrets_stay_in_the_host() {
    assert_eq!(query_result(2006), 0.0);
}

#[test]
fn the_same_request_gets_the_same_random_numbers() {
    let policy = loaded(&engine(), QUESTIONS);
    let first = decide(&policy, 2001, &[0.0]).unwrap();
    assert_eq!(decide(&policy, 2001, &[0.0]).unwrap(), first);
    assert_eq!(query_result(2001), route(Ok(first)).1);
}

#[test]
fn state_outlives_instances_and_components_but_not_its_trial() {
    let engine = engine();
    let state = Arc::<PolicyState>::default();
    let first = loaded_over(&engine, QUESTIONS, &state);
    assert_eq!(route(decide(&first, 2003, &[0.0])).1, 1.0);
    decide(&first, 2011, &[0.0]).unwrap_err();
    assert_eq!(route(decide(&first, 2003, &[0.0])).1, 2.0);
    let second = loaded_over(&engine, QUESTIONS, &state);
    assert_eq!(route(decide(&second, 2003, &[0.0])).1, 3.0);
    assert_eq!(state.get("turn"), Some(3_i64.to_le_bytes().to_vec()));
}

#[test]
fn a_flood_of_log_lines_is_dropped_and_counted() {
    let policy = loaded(&engine(), QUESTIONS);
    decide(&policy, 2010, &[0.0]).unwrap();
    let dropped = policy.stats().log_lines_dropped;
    assert!((80..=90).contains(&dropped), "{dropped}");
}

#[test]
fn data_from_a_policy_is_bounded() {
    let policy = loaded(&engine(), QUESTIONS);
    let fault = decide(&policy, 2011, &[0.0]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap, "{fault}");
}

#[test]
fn an_instance_with_another_plan_does_not_decide() {
    let engine = engine();
    let state = Arc::<PolicyState>::default();
    let policy = loaded_over(&engine, FICKLE, &state);
    let fault = decide(&policy, 1, &[0.0]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::NoInstance);
    assert!(fault.detail.contains("other features"), "{fault}");
    let error = engine
        .load("tested", &component(FICKLE), &settings(), state)
        .unwrap_err();
    assert!(error.to_string().contains("second instance"), "{error}");
}

#[test]
fn threads_decide_at_once_on_instances_of_their_own() {
    let policy = loaded(&engine(), LEAST);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for seq in 1..500 {
                    assert_eq!(route(decide(&policy, seq, &[1.0, 0.0])).0, 1);
                }
            });
        }
    });
    let stats = policy.stats();
    assert_eq!(stats.calls, 4 * 499);
    assert!((1..=8).contains(&stats.instances), "{stats:?}");
}

#[test]
fn the_queries_of_a_request_do_not_outlive_its_call() {
    let engine = engine();
    let policy = loaded(&engine, BEHAVIOURS);
    let queries: Arc<dyn DecisionQueries> = Arc::new(Answers);
    for seq in [1, 1001, 1] {
        let _ = decide_with(&policy, seq, &[0.0], &queries);
        assert_eq!(Arc::strong_count(&queries), 1);
    }
}

#[test]
fn dropping_policies_frees_their_instances() {
    let engine = engine();
    let bytes = component(LEAST);
    for _ in 0..40 {
        let policy = load(&engine, &bytes).unwrap();
        assert_eq!(route(decide(&policy, 1, &[1.0, 0.0])).0, 1);
    }
}
