//! The model against a log in virtual time: the simulator's own, of workers with known costs.

use std::fs;

use clap::Parser;
use serde_json::{Value, json};
use simulator::{FittedProfile, Mix, MixOptions, Outcome, Policies, RequestOutcome, Trace};

use super::*;
use crate::simulate::setting::Setting;

const WORKERS: usize = 4;
/// Room of a cache.
const CACHE_BLOCKS: usize = 3_000;
/// Milliseconds for every prompt, for a thousand uncached tokens and for a thousand cached ones.
const PREFILL_MS: [f64; 3] = [12.0, 80.0, 3.0];
const TRUE: FittedProfile = FittedProfile {
    prefill_ms: PREFILL_MS,
    transfer_ms: [0.0; 2],
    step_ms: [9.0, 0.4, 0.05],
    host_ms: 0.0,
    disk_ms: 0.0,
    kv_tokens: 2_000_000,
    link_gbps: 1.0,
};
/// Time of the first arrival, in microseconds since 1970.
const BEGUN_US: u64 = 1_000_000_000_000_000;

#[derive(Parser)]
struct SimulateCommand {
    #[command(flatten)]
    args: SimulateArgs,
}

fn requests() -> Trace {
    Mix::Conversation.generate(&MixOptions {
        seed: 7,
        requests: 600,
        rate_per_s: 2.0,
    })
}

/// Returns the course of these requests on workers with the true costs, placed by the policy.
fn served(trace: &Trace, policy: &Contestant) -> Outcome {
    let profile = Profile::Fitted(TRUE);
    let cluster = ClusterSpec {
        workers: vec![WorkerSpec::of(&profile, Role::Mixed, CACHE_BLOCKS); WORKERS],
        profile,
        ..ClusterSpec::mixed(0, 0, None)
    };
    let policies = Policies::One(policy.load().unwrap());
    simulator::run(trace, [policies], &RunSpec::of(cluster))
}

/// Returns the lines that a router would have written of a request.
fn lines(seq: usize, request: &simulator::Request, course: &RequestOutcome) -> [Value; 2] {
    let ms = |us: u64| (us - course.arrived_us) as f64 / 1e3;
    let [dispatched_us, finished_us] = [course.dispatched_us, course.finished_us].map(Option::unwrap);
    let worker = course.worker.unwrap();
    let complete = (request.prompt_tokens / 512) as usize;
    let blocks = request.blocks.iter().take(complete);
    let blocks: String = blocks.map(|block| format!("{block:012x}")).collect();
    let decision = json!({ "decision": {
        "request": "r", "seq": seq, "attempt": 0, "phase": "mixed",
        "session": request.session.map(|session| format!("{session:016x}")), "now-us": 0,
        "unix-us": BEGUN_US + dispatched_us, "model": "m", "path": "/v1/completions", "pool": "chat", "route": 1,
        "policy": 1, "fallback": false, "ids": [0, 1, 2, 3], "numbers": [], "verdict": "pass",
        "decided": { "route": { "worker": worker, "prefill": null } }, "took-us": dispatched_us - course.arrived_us,
    } });
    let outcome = json!({ "outcome": {
        "request": "r", "seq": seq, "unix-us": BEGUN_US + finished_us, "outcome": "complete", "status": 200,
        "worker": format!("w{worker}"), "prefill": null, "ttft-ms": course.first_token_us.map(ms),
        "duration-ms": ms(finished_us), "prompt-tokens": request.prompt_tokens, "matched-tokens": null,
        "cached-tokens": course.cached_tokens, "output-tokens": request.output_tokens, "block-tokens": 512,
        "blocks": blocks,
    } });
    [decision, outcome]
}

fn log(trace: &Trace, policy: &Contestant) -> String {
    let mut log = vec![json!({ "log": { "schema": 1, "conductor": "0", "run": "1", "unix-us": BEGUN_US } })];
    log.extend((0..WORKERS).map(|id| {
        json!({ "worker": { "id": id, "name": format!("w{id}"), "role": "mixed", "weight": 1.0, "labels": {} } })
    }));
    log.push(json!({ "policy": {
        "id": 1, "name": policy.label, "sha256": policy.sha256, "version": "1", "params": "{}",
        "request-columns": [], "columns": [], "more-request-columns": [], "more-columns": [],
    } }));
    let courses = served(trace, policy).courses;
    let requests = trace.requests.iter().zip(&courses).enumerate();
    log.extend(requests.flat_map(|(seq, (request, course))| lines(seq, request, course)));
    let lines: Vec<String> = log.iter().map(Value::to_string).collect();
    lines.join("\n")
}

/// Returns the report on the log.
fn reported(log: &Path) -> Value {
    let cache_tokens = (CACHE_BLOCKS * 512).to_string();
    let options = [
        "simulate",
        "--cache-tokens",
        &cache_tokens,
        "--chunk-tokens",
        "0",
        "--log",
    ];
    let command = SimulateCommand::try_parse_from([&options[..], &[log.to_str().unwrap()]].concat()).unwrap();
    let recorded = RecordedTrace::read(&command.args).unwrap().unwrap();
    let setting = Setting::of(&command.args, Some(&recorded)).unwrap();
    let contestants = recorded.contestants(&[]).unwrap();
    serde_json::to_value(recorded.report(&contestants, &setting.spec).unwrap()).unwrap()
}

#[track_caller]
fn check(found: &Value, expected: f64, tolerance: f64, report: &Value) {
    let found = found.as_f64().unwrap();
    assert!(
        (found - expected).abs() <= tolerance,
        "{found} instead of {expected}: {report:#}"
    );
}

#[test]
fn the_costs_and_the_times_of_known_workers_are_found_in_their_log() {
    let policies = Contestant::all(&["cache-aware".to_owned()]).unwrap();
    let trace = requests();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    fs::write(&path, log(&trace, &policies[0])).unwrap();

    let report = reported(&path);
    let measured = &report["measured"];
    assert_eq!(measured["policy"], "cache-aware");
    assert_eq!(measured["ttft-ms"]["measured"]["count"], trace.requests.len());
    for kind in ["ttft-error", "gap-error"] {
        for figure in ["mean", "p50"] {
            check(&measured[kind][figure], 0.0, 0.1, &report);
        }
    }
    let hits = &measured["token-hit-ratio"];
    check(
        &hits["simulated"],
        hits["measured"].as_f64().unwrap(),
        0.02,
        &report,
    );
    let prefill_ms = &report["about"]["fit"]["prefill-ms"][1];
    check(prefill_ms, PREFILL_MS[1], 0.05 * PREFILL_MS[1], &report);
}
