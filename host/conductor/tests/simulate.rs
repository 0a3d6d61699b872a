//! `conductor simulate`, as a user types it.

use std::process::{Command, Output};

use serde_json::Value;

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.arg("simulate").args(args).output().expect("it runs")
}

fn json(args: &[&str]) -> Value {
    let output = simulate(&[args, &["--json"]].concat());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
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
    assert!(!names.contains(&"tier-weight"), "a scorer is not asked by itself");
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
fn a_trace_is_read_from_a_file_and_every_bad_line_is_told() {
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

/// Refused, with these words.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let output = simulate(args);
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    for word in words {
        assert!(told.contains(word), "{told}");
    }
}

#[test]
fn what_cannot_be_simulated_is_told_with_how_to_mend_it() {
    refused(&["--workers", "0"], &["--workers", "1..=10000"]);
    refused(&["--speeds", "1e-9"], &["days"]);
    refused(&["--speeds", "0"], &["speed 0", "above 0"]);
    refused(&["--fetch", "often"], &["`off`, `cheapest`, or a ratio"]);
    refused(
        &["--trace", "/nowhere.jsonl"],
        &["failed to read the trace `/nowhere.jsonl`"],
    );
    refused(&["nobody"], &["`nobody`", "round-robin"]);
    refused(&["cache-aware={"], &["parameters of `cache-aware`"]);
    refused(&["--mix", "soup"], &["soup", "conversation"]);
    refused(&["cache-aware={\"backlog-price\":-1}"], &["backlog-price"]);
    refused(&["--requests", "0"], &["--requests", "1..=10000000"]);
    refused(&["--ttft-limit-s", "nan"], &["--ttft-limit-s"]);
}
