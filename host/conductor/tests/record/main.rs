//! Live traffic is recorded, replayed by the binary from the log alone, and explained by it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod dashboard;
mod http_api;
mod pipeline;
mod same_bytes;
mod simulated;
mod simulations;

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::{Fleet, ProgramRun, TestRouter, eventually, eventually_ok};
use serde_json::{Value, json};

/// Runs the binary beside the router, which lives in this process.
async fn conductor(args: &[&str]) -> ProgramRun {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.args(args);
    ProgramRun::beside(command).await
}

/// Runs `conductor policy replay`, and returns its JSON.
async fn replay(policy: &str, log: &Path) -> (Value, i32) {
    let log = log.to_str().unwrap();
    let run = conductor(&["policy", "replay", policy, "--log", log, "--json"]).await;
    (run.json(), run.code)
}

/// Completions are placed by `cache-aware`, chats by `round-robin`.
async fn recording(fleet: &Fleet, record: &str) -> TestRouter {
    let toml = format!(
        "[record]\nfile = \"decisions.jsonl\"\nsample = 1.0\n{record}\n[pools.chat]\ntokenize-timeout = \"10s\"\n{}\
         [[routes]]\nmatch.path = \"/v1/completions\"\npool = \"chat\"\npolicy = \"cache-aware\"\n\
         [[routes]]\npool = \"chat\"\npolicy = \"round-robin\"\n",
        fleet.workers_toml()
    );
    TestRouter::start(&toml).await.unwrap()
}

async fn fast_fleet() -> Fleet {
    let fleet = Fleet::start(3, |number, config| {
        config.seed = number as u64;
        config.time_scale = 100.0;
    });
    fleet.await.unwrap()
}

/// Returns the prompt of a conversation's next turn. There are four conversations.
fn prompt(number: usize) -> String {
    (0..60 + number)
        .map(|word| format!("topic{}word{word} ", number % 4))
        .collect()
}

/// Sends a conversation's next turn, which goes back to the worker of its prefix.
async fn complete(router: &TestRouter, number: usize) -> String {
    let body = json!({ "model": "mock", "prompt": prompt(number), "max_tokens": 2 });
    let answer = router.client.post("/v1/completions", &body).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("x-request-id").to_owned()
}

/// Waits until the index has the prompt of a turn by a worker's events.
async fn indexed(router: &TestRouter, number: usize) {
    let body = json!({ "model": "mock", "pool": "chat", "prompt": prompt(number) });
    eventually_ok("a worker has the prompt", || async {
        let answer = router.admin.post("/admin/index/lookup", &body).await.unwrap();
        let found = answer.json().unwrap();
        let has_it = |worker: &Value| worker["live"] == true && worker["matched_blocks"] == found["blocks"];
        let is_there = found["workers"]
            .as_array()
            .is_some_and(|workers| workers.iter().any(has_it));
        is_there.then_some(()).ok_or_else(|| found.to_string())
    })
    .await;
}

/// Sends a chat, and returns its id.
async fn chat(router: &TestRouter, stream: bool) -> String {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let body = json!({ "model": "mock", "messages": messages, "max_tokens": 2, "stream": stream });
    let answer = router.client.post("/v1/chat/completions", &body).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("x-request-id").to_owned()
}

/// Waits until as many requests have ended in the log.
async fn written(log: &Path, outcomes: usize) {
    eventually("the log is complete", || async {
        let text = fs::read_to_string(log).unwrap_or_default();
        text.lines()
            .filter(|line| line.starts_with("{\"outcome\""))
            .count()
            == outcomes
    })
    .await;
}

#[tokio::test]
async fn a_days_decisions_repeat_bit_for_bit_and_other_policies_run_over_them() {
    let fleet = fast_fleet().await;
    let router = recording(&fleet, "columns = \"all\"").await;
    for number in 0..24 {
        complete(&router, number).await;
        // The conversation's next turns find it.
        if number < 4 {
            indexed(&router, number).await;
        }
        chat(&router, number % 2 == 0).await;
    }
    let log = router.path("decisions.jsonl");
    written(&log, 48).await;

    for policy in ["cache-aware", "round-robin"] {
        let (report, code) = replay(policy, &log).await;
        assert_eq!(code, 0, "{report}");
        let (again, other) = (&report["again"], &report["other"]);
        assert_eq!(
            (&again["decisions"], &again["identical"]),
            (&json!(24), &json!(24)),
            "{report}"
        );
        assert_eq!(
            (&other["decisions"], &other["compared"]),
            (&json!(24), &json!(24)),
            "{report}"
        );
        assert_eq!(other["not-comparable"], json!({}), "{report}");
    }
    let (report, _) = replay("load-weighted", &log).await;
    let other = &report["other"];
    assert_eq!(
        (&report["again"]["decisions"], &other["compared"]),
        (&json!(0), &json!(48)),
        "{report}"
    );
    assert_eq!(
        other["recorded-policies"],
        json!({ "cache-aware": 24, "round-robin": 24 })
    );
    assert!(
        other["matched-recorded"].as_u64() > other["matched-replayed"].as_u64(),
        "it looks at no cache: {report}"
    );
    assert!(report["time"]["mean-ns"].as_u64().unwrap() > 0);

    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("topic"), "no text of prompts");
    let forged = router.path("forged.jsonl");
    fs::write(
        &forged,
        text.replacen(
            "\"verdict\":{\"route\":{\"row\":0",
            "\"verdict\":{\"route\":{\"row\":2",
            1,
        ),
    )
    .unwrap();
    let reports = [
        replay("cache-aware", &forged).await,
        replay("round-robin", &forged).await,
    ];
    let different = reports
        .iter()
        .map(|(report, _)| report["again"]["different"].as_u64().unwrap());
    assert_eq!(different.sum::<u64>(), 1, "{reports:?}");
    assert!(reports.iter().any(|(_, code)| *code == 1));
}

#[tokio::test]
async fn columns_that_were_not_recorded_are_named_and_their_decisions_not_compared() {
    let fleet = fast_fleet().await;
    let router = recording(&fleet, "").await;
    chat(&router, false).await;
    let log = router.path("decisions.jsonl");
    written(&log, 1).await;
    let (report, _) = replay("load-weighted", &log).await;
    let reasons = report["other"]["not-comparable"].as_object().unwrap();
    let (why, count) = reasons.iter().next().unwrap();
    assert!(why.starts_with("not recorded: load."), "{why}");
    assert_eq!((reasons.len(), count), (1, &json!(1)));
    let run = conductor(&["policy", "replay", "round-robin", "--log", "nowhere.jsonl"]).await;
    assert_eq!(
        (run.code, run.stderr.contains("nowhere.jsonl")),
        (2, true),
        "{run:?}"
    );
}

#[tokio::test]
async fn a_request_is_explained_by_its_id() {
    let fleet = fast_fleet().await;
    let router = recording(&fleet, "").await;
    complete(&router, 1).await;
    let id = complete(&router, 1).await;
    let admin = router.admin.base().to_owned();
    let page = router
        .admin_shows(&format!("/admin/explain/{id}"), "the request is over", |page| {
            page["outcome"].is_object()
        })
        .await;
    let call = &page["calls"][0];
    assert_eq!(
        (&call["policy"], &call["decided"]),
        (&json!("cache-aware"), &json!("route")),
        "{page}"
    );
    let candidates = call["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 3);
    let chosen = candidates
        .iter()
        .find(|candidate| candidate["chosen"] == "answers")
        .unwrap();
    assert_eq!(page["outcome"]["worker"], chosen["worker"]);
    assert!(chosen["numbers"]["load.requests"].is_number(), "{page}");

    let run = conductor(&["explain", &id, "--admin", &admin]).await;
    assert_eq!(run.code, 0, "{run:?}");
    let chose = format!("chose {}", chosen["worker"].as_str().unwrap());
    for expected in [
        &*id,
        "cache-aware@",
        &chose,
        "load.requests",
        "outcome: complete, status 200",
    ] {
        assert!(run.stdout.contains(expected), "no {expected} in:\n{}", run.stdout);
    }
    let run = conductor(&["explain", &id, "--admin", &admin, "--json"]).await;
    assert_eq!(run.json()["request"], json!(id));
    let run = conductor(&["explain", "nobody", "--admin", &admin]).await;
    assert!(
        run.code == 1 && run.stderr.contains("no request `nobody` is kept"),
        "{run:?}"
    );
}
