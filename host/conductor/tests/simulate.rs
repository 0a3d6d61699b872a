//! `conductor simulate`, as a user types it.

use std::process::{Command, Output};

use serde_json::{Value, json};

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.arg("simulate").args(args).output().expect("it runs")
}

fn json(args: &[&str]) -> Value {
    let output = simulate(&[args, &["--json"]].concat());
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

const SMALL: [&str; 4] = ["--requests", "300", "--workers", "4"];

#[test]
fn policies_are_compared_on_the_same_requests() {
    let report = json(&[&SMALL[..], &["round-robin", "cache-aware", "--speeds", "1,2"]].concat());
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["round-robin", "cache-aware", "round-robin", "cache-aware"]
    );
    for row in rows {
        assert_eq!(
            (&row["requests"], &row["served"]),
            (&300.into(), &300.into()),
            "{row}"
        );
        assert!(row.get("fault").is_none(), "{row}");
    }
    let hits = |row: usize| rows[row]["block-hit-ratio"].as_f64().unwrap();
    assert!(hits(1) > hits(0), "caches are found by who looks for them");
}

#[test]
fn the_same_seed_gives_the_same_report_whatever_thread_makes_it() {
    let args = [&SMALL[..], &["cache-aware", "load-weighted", "--decode", "2"]].concat();
    assert_eq!(json(&args), json(&args));
}

#[test]
fn without_a_name_all_built_in_policies_that_place_requests_are_compared() {
    let report = json(&["--requests", "50", "--workers", "2"]);
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    for expected in [
        "cache-aware",
        "load-weighted",
        "pd-pairing",
        "round-robin",
        "session-affinity",
    ] {
        assert!(names.contains(&expected), "{names:?}");
    }
    assert!(
        !names.contains(&"tier-weight"),
        "a scorer is not called by itself"
    );
}

#[test]
fn parameters_are_given_with_the_name() {
    let args = [
        &SMALL[..],
        &["cache-aware={\"backlog-price\":0.5}", "cache-aware"],
    ]
    .concat();
    let report = json(&args);
    let rows = report["rows"].as_array().unwrap();
    assert_ne!(rows[0]["ttft-s"], rows[1]["ttft-s"]);
}

#[test]
fn a_trace_is_read_from_a_file_and_every_bad_line_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.jsonl");
    let line = |at: u32| {
        format!(
            "{{\"timestamp\": {at}, \"input_length\": 700, \"output_length\": 9, \"hash_ids\": [1, {at}]}}\n"
        )
    };
    std::fs::write(&path, line(1_000) + &line(2_000)).unwrap();
    let file = path.to_str().unwrap();
    let report = json(&["--trace", file, "round-robin"]);
    assert_eq!(
        (&report["trace"], &report["rows"][0]["served"]),
        (&"mine".into(), &2.into())
    );
    std::fs::write(&path, line(1_000) + "nonsense\n" + &line(2_000) + "{}\n").unwrap();
    refused(&["--trace", file], &["mine.jsonl", "line 2", "line 4"]);
}

/// Checks that the arguments are refused as unusable, with these words.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    // Few, since some are refused only when the requests are there.
    let few: &[&str] = match args.contains(&"--requests") {
        true => &[],
        false => &["--requests", "1"],
    };
    let output = simulate(&[few, args].concat());
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    for word in words {
        assert!(printed.contains(word), "{printed}");
    }
}

#[test]
fn an_impossible_simulation_is_reported_with_its_remedy() {
    refused(&["--workers", "0"], &["--workers", "1..=10000"]);
    refused(&["--speeds", "1e-9", "--requests", "100"], &["days"]);
    refused(&["--speeds", "0"], &["speed 0", "above 0"]);
    refused(&["--fetch", "often"], &["`off`, `cheapest`, or a ratio"]);
    refused(
        &["--trace", "/nowhere.jsonl"],
        &["failed to read the trace `/nowhere.jsonl`"],
    );
    refused(&["nobody"], &["`nobody`", "round-robin"]);
    refused(&["cache-aware={"], &["parameters of `cache-aware`"]);
    refused(
        &[r#"cache-aware={"backlog-price":-1}"#],
        &["failed to load", "backlog-price"],
    );
    refused(&["--mix", "soup"], &["soup", "conversation"]);
    refused(&["--requests", "0"], &["--requests", "1..=10000000"]);
    refused(&["--ttft-limit-s", "nan"], &["--ttft-limit-s"]);
    refused(&["--costs", "wrong"], &["--costs", "`wrong:SIGMA`"]);
    refused(&["--fail", "1"], &["--fail", "`3@600-900`"]);
    refused(
        &["--fail", "1@5-9", "--fail", "1@7"],
        &["worker 1", "back before it fails again"],
    );
    refused(&["--fail", "8@1"], &["worker 8", "there are 8, counted from 0"]);
    refused(
        &["--worker-speeds", "1,2"],
        &["--worker-speeds", "has 2", "8 workers"],
    );
    refused(
        &["--workers", "1", "--worker-speeds", "0"],
        &["--worker-speeds", "0 is not from 0.001 to 1000"],
    );
    refused(&["--event-loss", "2"], &["--event-loss 2", "from 0 to 1"]);
    refused(
        &["--knowledge", "none", "--event-lag-ms", "5"],
        &["--event-lag-ms", "--knowledge events"],
    );
    refused(
        &["--profile", "nobodys"],
        &["`nobodys`", "`paper`, `mocker`, or a file"],
    );
    refused(&["--queue-timeout-s=-1"], &["--queue-timeout-s"]);
    refused(&["--decode-refuses"], &["--decode-refuses", "--decode"]);
    refused(
        &["--prefill-only", "--decode", "1"],
        &["--prefill-only", "--decode 1"],
    );
    refused(
        &["--cache-tokens", "0", "--host-cache-tokens", "5000"],
        &["--cache-tokens"],
    );
    refused(&["--spread"], &["--trace"]);
    refused(&["--seed", "4294967296"], &["--seed"]);
}

#[test]
fn no_decode_workers_may_be_required_where_there_are_none_anyway() {
    let report = json(&[&SMALL[..], &["round-robin", "--prefill-only", "--decode", "0"]].concat());
    assert_eq!(report["rows"][0]["served"], 300);
}

/// Returns the figures of one run with these options.
fn one(args: &[&str]) -> Value {
    let report = json(&[&SMALL[..], &["mooncake-alg1"], args].concat());
    let row = report["rows"][0].clone();
    assert!(row.get("fault").is_none(), "{row}");
    row
}

#[test]
fn the_hit_ratio_grows_with_the_knowledge_of_the_router() {
    let hits = |args: &[&str]| one(args)["block-hit-ratio"].as_f64().unwrap();
    let informed = hits(&[]);
    let nothing = hits(&["--knowledge", "none"]);
    assert!(nothing < informed, "{nothing} {informed}");
    assert!(hits(&["--knowledge", "assumed"]) > nothing);
    let late = hits(&["--event-lag-ms", "60000"]);
    assert!(late < informed, "{late} {informed}");
    assert_eq!(hits(&["--event-loss", "1"]), nothing);
    let several = hits(&["--replicas", "4"]);
    assert!(several < informed, "{several} {informed}");
}

#[test]
fn costs_speeds_and_profiles_change_what_comes_out() {
    let ttft = |args: &[&str]| one(args)["ttft-s"]["mean"].as_f64().unwrap();
    let usual = ttft(&[]);
    assert!(ttft(&["--profile", "mocker"]) < usual);
    assert!(ttft(&["--worker-speeds", "1,1,0.3,0.3"]) > usual);
    let exact = ttft(&["--costs", "exact"]);
    assert!(exact < usual && ttft(&["--costs", "wrong:1"]) > exact);
    assert_ne!(ttft(&["--chunk-tokens", "0"]), usual);
    assert_ne!(ttft(&["--order", "shortest"]), usual);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.json");
    let profile = |constant: u32| {
        format!(
            r#"{{"prefill-ms": [{constant}, 1, 0], "transfer-ms": [0, 1], "step-ms": [1, 0, 0],
                "host-ms": 0, "disk-ms": 0, "kv-tokens": 1000000, "link-gbps": 100}}"#
        )
    };
    std::fs::write(&path, profile(5)).unwrap();
    let file = path.to_str().unwrap();
    assert!(ttft(&["--profile", file]) < 0.1);
    std::fs::write(&path, profile(0).replace("[0, 1, 0]", "[-1, 1, 0]")).unwrap();
    refused(&["--profile", file], &["mine.json", "`prefill-ms`"]);
}

#[test]
fn host_and_disk_tiers_raise_the_hit_ratio_of_a_small_device() {
    let hits =
        |args: &[&str]| one(&[&["--cache-tokens", "100000"], args].concat())["block-hit-ratio"].as_f64();
    let device = hits(&[]);
    assert!(hits(&["--host-cache-tokens", "1000000"]) > device);
    assert!(hits(&["--disk-cache-tokens", "1000000"]) > device);
}

#[test]
fn workers_that_fail_and_queues_that_are_too_short_are_reported() {
    let row = one(&["--fail", "1@10-20", "--fail", "2@30"]);
    assert!(row["lost"].as_u64() > Some(0), "{row}");
    let held = one(&["--queue", "0", "--queue-timeout-s", "0"]);
    assert_eq!(held["served"], 300);
}

#[test]
fn decode_workers_that_refuse_are_reported_with_what_they_wasted() {
    let split = ["--decode", "1", "--tbt-limit-ms", "40"];
    let patient = one(&split);
    assert_eq!(
        (&patient["rejected"], &patient["wasted-prefill-tokens"]),
        (&0.into(), &0.into())
    );
    let refusing = one(&[&split[..], &["--decode-refuses"]].concat());
    assert!(
        refusing["rejected-after-prefill"].as_u64() > Some(0),
        "{refusing}"
    );
    assert_eq!(refusing["rejected-early"], 0);
    assert!(refusing["wasted-prefill-share"].as_f64() > Some(0.0));
    assert!(
        refusing["loads"]["decode"]["swing"].as_f64() > Some(0.0),
        "{refusing}"
    );
}

#[test]
fn decode_workers_of_a_log_may_refuse() {
    let worker = |id: u32, name: &str, role: &str| {
        let labels = json!({});
        json!({ "worker": { "id": id, "name": name, "role": role, "weight": 1.0, "labels": labels } })
    };
    let decision = |phase: &str, unix_us: u64, worker: u32| {
        json!({ "decision": {
            "request": "r", "seq": 1, "attempt": 0, "phase": phase, "session": null, "now-us": 0, "unix-us": unix_us,
            "model": "m", "path": "/v1/completions", "pool": "chat", "route": 1, "policy": 1, "fallback": false,
            "ids": [0, 1], "numbers": [], "verdict": "pass", "took-us": 5.0,
            "decided": { "route": { "worker": worker, "prefill": null } },
        } })
    };
    let lines = [
        json!({ "log": { "schema": 1, "conductor": "0", "run": "1", "unix-us": 0 } }),
        worker(0, "p", "prefill"),
        worker(1, "d", "decode"),
        json!({ "policy": {
            "id": 1, "name": "mine", "sha256": "ab", "version": "1", "params": "{}",
            "request-columns": [], "columns": [], "more-request-columns": [], "more-columns": [],
        } }),
        decision("prefill", 20_000, 0),
        decision("decode", 60_000, 1),
        json!({ "outcome": {
            "request": "r", "seq": 1, "unix-us": 100_000, "outcome": "complete", "status": 200, "worker": "d",
            "prefill": "p", "ttft-ms": 40.0, "duration-ms": 90.0, "prompt-tokens": 37, "matched-tokens": 16,
            "cached-tokens": 5, "output-tokens": 9, "block-tokens": 16, "blocks": "00000000000a0000000000ff",
        } }),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    std::fs::write(&path, lines.map(|line| line.to_string()).join("\n")).unwrap();
    let log = path.to_str().unwrap();
    let report = json(&[
        "round-robin",
        "--profile",
        "paper",
        "--decode-refuses",
        "--log",
        log,
    ]);
    let setting = &report["setting"];
    assert_eq!(
        (&setting["workers"], &setting["decode"]),
        (&1.into(), &1.into()),
        "{setting}"
    );
}

/// Policy that routes to the worker with the label `gold = "1"`, and rejects a request without such a worker.
const GOLD: &str = r#"
(data (i32.const 48) "label.gold")
(data (i32.const 128)
  "\00\00\00\00" "\00\00\00\00\00\00\00\00" "\98\00\00\00\01\00\00\00" "\00\00\00\00" "\30\00\00\00\0a\00\00\00")
(func (export "conductor:policy/policy@0.1.0#configure") (param i32 i32) (result i32) (i32.const 128))
(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param $seq i64) (param i32 i64 i32 i32) (param $ids i32) (param $count i32) (param $numbers i32) (param i32)
  (result i32)
  (local $row i32)
  (loop $next
    (if (f64.eq
          (f64.load (i32.add (local.get $numbers) (i32.mul (local.get $row) (i32.const 8)))) (f64.const 1))
      (then (return (call $route (local.get $row) (f64.const 1)))))
    (local.set $row (i32.add (local.get $row) (i32.const 1)))
    (br_if $next (i32.lt_u (local.get $row) (local.get $count))))
  (i32.store8 (i32.const 1024) (i32.const 2))
  (i32.store (i32.const 1032) (i32.const 503))
  (i32.store (i32.const 1036) (i32.const 0))
  (i32.store (i32.const 1040) (i32.const 16))
  (i32.store (i32.const 1044) (i32.const 11))
  (i32.const 1024))"#;

#[test]
fn workers_of_a_log_keep_their_weights_and_labels() {
    let worker = |id: u32, name: &str, weight: f64, labels: Value| json!({ "worker": { "id": id, "name": name, "role": "mixed", "weight": weight, "labels": labels } });
    let mut lines = vec![
        json!({ "log": { "schema": 1, "conductor": "0", "run": "1", "unix-us": 0 } }),
        worker(0, "a", 1.0, json!({})),
        worker(1, "b", 2.0, json!({ "gold": "1" })),
        json!({ "policy": {
            "id": 1, "name": "mine", "sha256": "ab", "version": "1", "params": "{}",
            "request-columns": [], "columns": [], "more-request-columns": [], "more-columns": [],
        } }),
    ];
    for seq in 1..=20_u64 {
        let at_us = seq * 1_000_000;
        lines.push(json!({ "decision": {
            "request": "r", "seq": seq, "attempt": 0, "phase": "mixed", "session": null, "now-us": 0, "unix-us": at_us,
            "model": "m", "path": "/v1/completions", "pool": "chat", "route": 1, "policy": 1, "fallback": false,
            "ids": [0, 1], "numbers": [], "verdict": "pass", "took-us": 5.0,
            "decided": { "route": { "worker": 1, "prefill": null } },
        } }));
        lines.push(json!({ "outcome": {
            "request": "r", "seq": seq, "unix-us": at_us + 90_000, "outcome": "complete", "status": 200, "worker": "b",
            "prefill": null, "ttft-ms": 40.0, "duration-ms": 90.0, "prompt-tokens": 37, "matched-tokens": 16,
            "cached-tokens": 5, "output-tokens": 9, "block-tokens": 16, "blocks": "00000000000a0000000000ff",
        } }));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    let prelude = include_str!("../../policy-runtime/tests/wat/prelude.wat");
    let module = wat::parse_str(format!("(module {GOLD} {prelude})")).unwrap();
    let policy = folder.path().join("gold.wasm");
    std::fs::write(&policy, policy_component::componentise(&module).unwrap()).unwrap();
    let args = [
        policy.to_str().unwrap(),
        "ttft-queue",
        "--profile",
        "paper",
        "--log",
        path.to_str().unwrap(),
    ];
    let report = json(&args);
    assert_eq!(report["rows"][0]["served"], 20, "{report}");
    assert_eq!(
        report["rows"][0]["imbalance"], 2.0,
        "one of two workers has them all"
    );
    let not_modelled = &report["recording"]["not-modelled"];
    assert_eq!(not_modelled["only-weights-differ"], true, "{not_modelled}");
    assert_eq!(
        not_modelled["unknown-numbers"],
        json!({ "request.ttft-target-ms": ["ttft-queue"] })
    );
    let printed = String::from_utf8(simulate(&args).stdout).unwrap();
    assert!(printed.contains("different weights"), "{printed}");
}

#[test]
fn a_report_has_the_inputs_it_was_made_with() {
    let report = json(
        &[
            &SMALL[..],
            &["round-robin", "--fetch", "1.5", "--fail", "3@5-6", "--seed", "9"],
        ]
        .concat(),
    );
    let setting = &report["setting"];
    for (name, value) in [
        ("workers", Value::from(4)),
        ("mix", "conversation".into()),
        ("requests", 300.into()),
        ("seed", 9.into()),
        ("fetch", "1.5".into()),
        ("fail", vec!["3@5-6"].into()),
        ("costs", "learnt".into()),
        ("knowledge", "events".into()),
        ("profile", "paper".into()),
        ("chunk-tokens", 8_192.into()),
        ("queue", 1_000.into()),
    ] {
        assert_eq!(setting[name], value, "{name} of {setting}");
    }
    assert!(
        report["facts"]["ideal-block-hit"].is_number(),
        "{}",
        report["facts"]
    );
}

#[test]
fn the_name_of_a_policys_file_may_have_an_equals_sign() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a=b.wasm");
    std::fs::copy(
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../policies/prebuilt/cache-aware.wasm"
        ),
        &path,
    )
    .unwrap();
    let name = path.to_str().unwrap();
    let with = format!("{name}={{\"backlog-price\":0.5}}");
    let report = json(&[&SMALL[..], &[name, &with]].concat());
    assert_ne!(report["rows"][0]["ttft-s"], report["rows"][1]["ttft-s"]);
}
