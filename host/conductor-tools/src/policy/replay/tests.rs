//! Replays of policies that do not end.

use policy_component::componentise;
use serde_json::{Value, json};

use super::*;

/// Policy that never answers from request 1,000 on: it passes the probe of its loading.
const ENDLESS: &str = r#"(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param $seq i64) (param i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i64.ge_u (local.get $seq) (i64.const 1000)) (then (loop $forever (br $forever))))
  (call $route (i32.const 0) (f64.const 0)))"#;
/// Memory, an allocator, a name, and a plan of one column.
const PARTS: [&str; 2] = [
    include_str!("../../../../policy-runtime/tests/wat/plan.wat"),
    include_str!("../../../../policy-runtime/tests/wat/prelude.wat"),
];

fn endless() -> ComponentFile {
    let module = wat::parse_str(format!("(module {ENDLESS} {})", PARTS.concat())).unwrap();
    ComponentFile {
        label: "endless.wasm".to_owned(),
        name: "endless".to_owned(),
        bytes: componentise(&module).unwrap().into(),
    }
}

/// Returns a log of so many decisions of this component and of another policy in turn.
fn log(subject: &ComponentFile, decisions: u64) -> String {
    let policy = |id: u32, sha256: &str| {
        json!({ "policy": {
            "id": id, "name": "a", "sha256": sha256, "version": "1", "params": "{}",
            "request-columns": [], "columns": ["load.requests"], "more-request-columns": [], "more-columns": [],
        } })
    };
    let mut lines = vec![
        json!({ "log": { "schema": 1, "conductor": "0", "run": "1", "unix-us": 0 } }),
        json!({ "worker": { "id": 0, "name": "w", "role": "mixed", "weight": 1.0, "labels": {} } }),
        policy(1, &subject.sha256()),
        policy(2, "ab"),
    ];
    lines.extend((0..decisions).map(|at| {
        json!({ "decision": {
            "request": "r", "seq": 1_000 + at, "attempt": 0, "phase": "mixed", "session": null, "now-us": 0,
            "unix-us": 9, "model": "m", "path": "/v1/completions", "pool": "chat", "route": 1,
            "policy": 1 + at % 2, "fallback": false, "ids": [0], "numbers": [2.0], "took-us": 5.0,
            "verdict": { "route": { "row": 0, "prefill": null, "score": 0.0 } },
            "decided": { "route": { "worker": 0, "prefill": null } },
        } })
    }));
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    lines.join("\n")
}

/// Returns the report on a replay of so many decisions by a policy that never answers.
fn replayed(decisions: u64) -> Value {
    let (subject, folder) = (endless(), tempfile::tempdir().unwrap());
    let files = [folder.path().join("decisions.jsonl")];
    std::fs::write(&files[0], log(&subject, decisions)).unwrap();
    let settings = patient(PolicySettings::default(), Duration::from_millis(20));
    let policy = engine()
        .unwrap()
        .load(&subject.name, &subject.bytes, &settings, Arc::default())
        .unwrap();
    let report = replay(&policy, &subject, &settings, Log::open(&files)).unwrap();
    assert!(report.exit() == Exit::Failure);
    serde_json::to_value(&report).unwrap()
}

#[test]
fn a_replay_of_an_endless_policy_ends_after_a_few_decisions() {
    let report = replayed(2_000);
    assert_eq!(report["ended-early"], true, "{report}");
    assert_eq!(report["again"]["different"], 3, "{report}");
    assert_eq!(report["other"]["faults"], json!({ "deadline": 2 }), "{report}");
}

#[test]
fn a_replay_whose_last_decisions_run_out_of_time_is_whole() {
    let report = replayed(5);
    assert_eq!(
        (&report["ended-early"], &report["decisions"]),
        (&json!(false), &json!(5)),
        "{report}"
    );
}

#[test]
fn a_decision_in_time_ends_a_row_of_those_that_run_out_of_it() {
    let mut time_outs = TimeOuts::default();
    for ran_out_of_time in [true, true, true, true, false, true, true, true, true] {
        time_outs.count(ran_out_of_time);
        assert!(!time_outs.are_too_many());
    }
    time_outs.count(true);
    assert!(time_outs.are_too_many());
}
