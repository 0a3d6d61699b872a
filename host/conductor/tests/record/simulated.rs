//! Tests of simulating a router's record by the binary: the requests come out as they were sent. How well the model
//! repeats measured times is tested in virtual time, in `conductor-tools`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use harness::{Client, Fleet, ProgramRun, TestRouter};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{conductor, written};

const SESSIONS: u32 = 40;
const TURNS: usize = 6;
const BLOCK: usize = 16;
/// The engines': 65,536 tokens in blocks of 16.
const CACHE_TOKENS: &str = "65536";

/// Returns the prompts of a conversation: a beginning that one in four share, and with every turn more of their own.
fn prompts(session: u32) -> Vec<Vec<u32>> {
    let mut prompt: Vec<u32> = (0..600).map(|at| 10_000 + session % 4 * 1_000 + at).collect();
    let turns = (0..TURNS as u32).map(|turn| {
        let answered = 120 + (session * 7 + turn * 31) % 200;
        prompt.extend((0..answered).map(|at| 20_000 + session * 200 + turn * 20 + at % 97));
        prompt.clone()
    });
    turns.collect()
}

/// Returns the share of blocks that a cache without limits would have had, and their number.
fn ideal() -> (f64, usize) {
    let mut seen = HashSet::new();
    let (mut all, mut hits) = (0, 0);
    for prompt in (0..SESSIONS).flat_map(prompts) {
        all += prompt.len().div_ceil(BLOCK);
        let ends = (1..=prompt.len() / BLOCK).map(|block| block * BLOCK);
        hits += ends.filter(|&end| !seen.insert(prompt[..end].to_vec())).count();
    }
    (hits as f64 / all as f64, all)
}

async fn fleet() -> Fleet {
    let fleet = Fleet::start(4, |number, config| {
        config.seed = number as u64;
        config.time_scale = 100.0;
    });
    fleet.await.unwrap()
}

async fn converse(client: Client, session: u32) {
    for (turn, prompt) in prompts(session).into_iter().enumerate() {
        let body = json!({
            "model": "mock", "prompt": prompt, "max_tokens": 6 + (session + turn as u32) % 8, "user": format!("user-{session}"),
            "stream": true, "stream_options": { "include_usage": true },
        });
        let answer = client.post("/v1/completions", &body).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

/// Returns a router that records conversations of several turns, all of them over.
async fn recorded(fleet: &Fleet, record: &str) -> (TestRouter, PathBuf) {
    let toml = format!(
        "[record]\nfile = \"decisions.jsonl\"\nsample = 1.0\n{record}\n{}[[routes]]\npool = \"chat\"\npolicy = \"cache-aware\"\n",
        fleet.workers_toml()
    );
    let router = TestRouter::start(&toml).await.unwrap();
    let mut sessions = JoinSet::new();
    for session in 0..SESSIONS {
        sessions.spawn(converse(router.client.clone(), session));
    }
    sessions.join_all().await;
    let log = router.path("decisions.jsonl");
    written(&log, SESSIONS as usize * TURNS).await;
    (router, log)
}

async fn simulate(log: &Path, more: &[&str]) -> Value {
    let run = simulation(log, more).await;
    assert_eq!(run.code, 0, "{run:?}");
    run.json()
}

async fn simulation(log: &Path, more: &[&str]) -> ProgramRun {
    let log = log.to_str().unwrap();
    let args = [
        "simulate",
        "--log",
        log,
        "--cache-tokens",
        CACHE_TOKENS,
        "--chunk-tokens",
        "0",
        "--json",
    ];
    conductor(&[&args, more].concat()).await
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value.as_f64().ok_or_else(|| value.to_string()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_load_is_simulated_as_it_was_sent() {
    let fleet = fleet().await;
    let (_router, log) = recorded(&fleet, "prompt-blocks = 16").await;
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("user-1"), "sessions are hashes");

    let report = simulate(&log, &[]).await;
    let facts = &report["facts"];
    let (ideal_hit, blocks) = ideal();
    assert_eq!(facts["requests"], json!(SESSIONS as usize * TURNS));
    assert_eq!(facts["blocks"], json!(blocks));
    // A next prompt continues where the answer could have ended, so the answers count as repeated.
    let with_answers = number(&facts["ideal-block-hit"]) - ideal_hit;
    assert!(
        (0.0..0.02).contains(&with_answers),
        "{facts} instead of {ideal_hit}"
    );
    assert_eq!(report["workers"], json!(4));

    let recording = &report["recording"];
    assert_eq!(recording["about"]["recorded-share"], json!(1.0), "{recording}");
    let measured = &recording["measured"];
    assert_eq!(measured["policy"], json!("cache-aware"));
    let ttft = &measured["ttft-ms"];
    assert_eq!(ttft["measured"]["count"], json!(SESSIONS as usize * TURNS));
    for figures in [
        &measured["ttft-error"],
        &measured["gap-error"],
        &recording["about"]["fit"],
    ] {
        assert!(figures.is_object(), "{recording}");
    }

    // Failures and routers that the recorded fleet had not are none of the model's errors.
    let failures = ["--fail", "0@1", "--replicas", "2", "--router-fail", "1@2"];
    let failing = simulate(&log, &failures).await;
    assert_eq!(failing["recording"]["measured"], *measured);

    // The recorded policy alone is nothing to compare.
    let alone = simulation(&log, &["cache-aware", "--compare"]).await;
    assert_eq!(
        (alone.code, alone.stderr.contains("at least two policies")),
        (2, true),
        "{alone:?}"
    );

    // The same requests with another policy, at costs that no measured time has a part in.
    let report = simulate(&log, &["round-robin", "--profile", "paper"]).await;
    let rows = report["rows"].as_array().unwrap();
    let hits: Vec<f64> = rows.iter().map(|row| number(&row["block-hit-ratio"])).collect();
    assert!(
        hits[0] > hits[1],
        "the one that decided, then round-robin: {hits:?}"
    );
}

#[tokio::test]
async fn a_log_without_blocks_is_refused_with_what_to_configure() {
    let fleet = super::fast_fleet().await;
    let router = super::recording(&fleet, "").await;
    super::complete(&router, 1).await;
    let log = router.path("decisions.jsonl");
    written(&log, 1).await;
    let run = conductor(&["simulate", "--log", log.to_str().unwrap()]).await;
    assert_eq!(
        (run.code, run.stderr.contains("prompt-blocks = 16")),
        (2, true),
        "{run:?}"
    );
}
