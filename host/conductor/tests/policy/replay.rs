//! `conductor policy replay` of a component over decisions of its own and of another policy.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::binary::policy;
use crate::components::{Files, component, deciding};

/// Writes a log of so many decisions of the component and of another policy in turn.
fn log(files: &Files, component: &[u8], decisions: u64) -> std::path::PathBuf {
    let sha256: String = Sha256::digest(component)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let policy = |id: u32, name: &str, sha256: &str| {
        json!({ "policy": {
            "id": id, "name": name, "sha256": sha256, "version": "1", "params": "{}",
            "request-columns": [], "columns": ["load.requests"], "more-request-columns": [], "more-columns": [],
        } })
    };
    let mut lines = vec![
        json!({ "log": { "schema": 1, "conductor": "0", "run": "1", "unix-us": 0 } }),
        json!({ "worker": { "id": 0, "name": "w", "role": "mixed", "weight": 1.0, "labels": {} } }),
        policy(1, "first", &sha256),
        policy(2, "other", "ab"),
    ];
    lines.extend((0..decisions).map(|at| {
        json!({ "decision": {
            "request": "r", "seq": at, "attempt": 0, "phase": "mixed", "session": null, "now-us": 0,
            "unix-us": 9, "model": "m", "path": "/v1/completions", "pool": "chat", "route": 1,
            "policy": 1 + at % 2, "fallback": false, "ids": [0], "numbers": [2.0], "took-us": 5.0,
            "verdict": { "route": { "row": 0, "prefill": null, "score": 0.0 } },
            "decided": { "route": { "worker": 0, "prefill": null } },
        } })
    }));
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    files.write("decisions.jsonl", lines.join("\n"))
}

#[test]
fn a_replay_repeats_its_own_decisions_and_compares_its_choices_with_those_of_others() {
    let first = deciding("(call $route (i32.const 0) (f64.const 0))");
    let (files, component) = (Files::new(), component(&first));
    let first = files.write("first.wasm", &component);
    let log = log(&files, &component, 12);
    let run = policy([
        "replay",
        first.to_str().unwrap(),
        "--log",
        log.to_str().unwrap(),
        "--json",
    ]);
    assert_eq!(run.code, 0, "{run:?}");
    let report = run.json();
    assert_eq!(
        (&report["ended-early"], &report["decisions"]),
        (&json!(false), &json!(12)),
        "{report}"
    );
    assert_eq!(report["again"]["identical"], json!(6), "{report}");
    assert_eq!(report["other"]["agreed"], json!(6), "{report}");
}
