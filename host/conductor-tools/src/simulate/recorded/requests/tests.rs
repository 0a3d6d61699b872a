//! Tests of the lines of a log.

use serde_json::{Value, json};

use super::*;

fn log(run: &str) -> Value {
    json!({ "log": { "schema": 1, "conductor": "0", "run": run, "unix-us": 0 } })
}

fn worker(id: u32, name: &str, role: &str) -> Value {
    json!({ "worker": { "id": id, "name": name, "role": role, "weight": 1.0, "labels": {} } })
}

fn policy() -> Value {
    json!({ "policy": {
        "id": 1, "name": "mine", "sha256": "ab", "version": "1", "params": "{}",
        "request-columns": [], "columns": [], "more-request-columns": [], "more-columns": [],
    } })
}

/// Returns a decision that took 5 ms, with its result.
fn decision(seq: u64, phase: &str, ended_us: u64, decided: &Value) -> Value {
    json!({ "decision": {
        "request": "r", "seq": seq, "attempt": 0, "phase": phase, "session": "00000000000000ff", "now-us": 0, "unix-us": ended_us,
        "model": "m", "path": "/v1/completions", "pool": "chat", "route": 1, "policy": 1, "fallback": false, "ids": [0, 1],
        "numbers": [], "verdict": "pass", "decided": decided, "took-us": 5_000.0,
    } })
}

/// Returns a decision with these candidates, of which the last one is chosen.
fn among(seq: u64, phase: &str, ids: &[u32]) -> Value {
    let mut decision = decision(seq, phase, 20_000, &to(ids[ids.len() - 1]));
    decision["decision"]["ids"] = json!(ids);
    decision
}

fn to(worker: u32) -> Value {
    json!({ "route": { "worker": worker, "prefill": null } })
}

/// Returns an outcome at 100 ms after 90 ms, with these additional fields.
fn outcome(seq: u64, more: &Value) -> Value {
    let mut outcome = json!({
        "request": "r", "seq": seq, "unix-us": 100_000, "outcome": "complete", "status": 200, "worker": "b", "prefill": null,
        "ttft-ms": 40.0, "duration-ms": 90.0, "prompt-tokens": 37, "matched-tokens": 16, "cached-tokens": null, "output-tokens": 9,
    });
    let fields = outcome.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    json!({ "outcome": outcome })
}

fn read(lines: &[Value]) -> anyhow::Result<LoggedRequests> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    std::fs::write(&path, text.join("\n")).unwrap();
    LoggedRequests::read(&[path])
}

fn head() -> Vec<Value> {
    vec![
        log("1"),
        worker(0, "a", "mixed"),
        worker(1, "b", "mixed"),
        policy(),
    ]
}

#[test]
fn a_request_follows_its_decisions_and_its_outcome() {
    let blocks = json!({ "block-tokens": 16, "blocks": "00000000000a0000000000ff" });
    let held = json!({ "queue": { "ask-again-ms": 5 } });
    let lines = [
        head(),
        vec![
            decision(7, "mixed", 20_000, &held),
            decision(7, "mixed", 30_000, &to(1)),
            outcome(7, &blocks),
        ],
    ];
    let read = read(&lines.concat()).unwrap();
    let pool = &read.pools["chat"];
    let expected = RecordedRequest {
        at_us: 15_000,
        dispatched_us: 30_000,
        first_token_us: Some(50_000),
        finished_us: 100_000,
        prompt_tokens: 37,
        output_tokens: 9,
        blocks: vec![10, 255],
        session: Some(255),
        worker: 1,
        prefill: None,
        cached_tokens: Some(16),
        model: "m".into(),
    };
    assert_eq!(pool.requests, [expected]);
    let facts = pool.first(None).unwrap();
    assert_eq!((pool.block_tokens, facts.with_blocks), (Some(16), 1));
    assert_eq!(facts.before_ms, 5.0, "it arrived at 10 ms and was decided at 15");
    assert_eq!(read.share(), 1.0);
}

#[test]
fn of_two_legs_the_prompts_dispatch_counts_and_both_workers_are_known() {
    let lines = [
        vec![
            log("1"),
            worker(0, "a", "prefill"),
            worker(1, "b", "decode"),
            policy(),
        ],
        vec![
            decision(1, "prefill", 20_000, &to(0)),
            decision(1, "decode", 60_000, &to(1)),
            outcome(1, &json!({ "prefill": "a", "cached-tokens": 5 })),
        ],
    ];
    let read = read(&lines.concat()).unwrap();
    let pool = &read.pools["chat"];
    let request = &pool.requests[0];
    assert_eq!(
        (request.dispatched_us, request.worker, request.prefill),
        (20_000, 1, Some(0))
    );
    assert_eq!(
        request.cached_tokens,
        Some(5),
        "the worker's report has precedence over the index"
    );
    let roles: Vec<Role> = pool.workers.iter().map(|worker| worker.role).collect();
    assert_eq!(roles, [Role::Prefill, Role::Decode]);
}

/// Returns the names of the simulated workers.
fn fleet(pool: &LoggedPool) -> Vec<String> {
    let fleet = pool.fleet().into_iter();
    fleet.map(|worker| worker.identity.name).collect()
}

#[test]
fn workers_have_the_order_of_the_routers_pool_with_decode_workers_last() {
    let lines = [
        log("1"),
        worker(0, "w2", "mixed"),
        worker(1, "d", "decode"),
        worker(2, "w10", "mixed"),
        worker(3, "w1", "mixed"),
        policy(),
        among(1, "mixed", &[0, 1, 2, 3]),
    ];
    assert_eq!(
        fleet(&read(&lines).unwrap().pools["chat"]),
        ["w2", "w10", "w1", "d"]
    );
}

#[test]
fn a_worker_that_a_later_decision_has_first_goes_where_the_router_has_it() {
    let names = ["a", "b", "c", "d", "e"];
    let workers = (0..).zip(names).map(|(id, name)| worker(id, name, "mixed"));
    let workers: Vec<Value> = workers.collect();
    // The ids of the second run begin again.
    let second = vec![worker(0, "f", "mixed"), worker(1, "a", "mixed"), policy()];
    let lines = [
        vec![log("1"), policy()],
        workers,
        vec![
            among(1, "mixed", &[1, 3]),
            outcome(1, &json!({ "worker": "d" })),
            among(2, "mixed", &[0, 1, 2, 3, 4]),
            outcome(2, &json!({ "worker": "e" })),
            log("2"),
        ],
        second,
        vec![among(1, "mixed", &[0, 1])],
    ];
    let read = read(&lines.concat()).unwrap();
    let pool = &read.pools["chat"];
    assert_eq!(fleet(pool), ["f", "a", "b", "c", "d", "e"]);
    let answered = pool
        .requests
        .iter()
        .map(|request| &*pool.workers[request.worker].identity.name);
    assert_eq!(answered.collect::<Vec<_>>(), ["d", "e"]);
}

#[test]
fn requests_that_cannot_be_simulated_are_counted_by_reason() {
    let placed = |seq| decision(seq, "mixed", 20_000, &to(1));
    let lines = [
        head(),
        vec![
            placed(1),
            outcome(1, &json!({ "outcome": "client-left" })),
            placed(2),
            outcome(2, &json!({ "status": 400 })),
            placed(3),
            outcome(3, &json!({ "worker": "c" })),
            placed(4),
            outcome(4, &json!({ "output-tokens": null })),
            placed(5),
            outcome(5, &json!({ "output-tokens": null, "answer-events": 3 })),
            json!("no line"),
        ],
    ];
    let read = read(&lines.concat()).unwrap();
    let pool = &read.pools["chat"];
    let expected = LeftOut {
        not_served: 2,
        not_placed: 1,
        lengths_unknown: 1,
        unfinished: 0,
    };
    assert_eq!(pool.left_out, expected);
    assert_eq!(
        pool.requests.len(),
        1,
        "events of a stream stand for tokens that no usage reports"
    );
    assert_eq!((pool.requests[0].output_tokens, read.unreadable), (3, 1));
}

#[test]
fn a_request_with_its_decision_or_its_end_alone_is_counted() {
    let lines = [
        head(),
        vec![outcome(1, &json!({})), decision(2, "mixed", 20_000, &to(1))],
        vec![log("2")],
        head()[1..].to_vec(),
        vec![decision(3, "mixed", 20_000, &to(1))],
    ];
    let read = read(&lines.concat()).unwrap();
    assert_eq!(
        (read.without_decision, read.pools["chat"].left_out.unfinished),
        (1, 2)
    );
}

#[test]
fn a_sample_is_recognised_by_the_numbers_that_are_missing_in_each_run() {
    let ended = |seq| vec![decision(seq, "mixed", 20_000, &to(1)), outcome(seq, &json!({}))];
    let lines = [
        head(),
        ended(11),
        ended(20),
        vec![log("2")],
        head()[1..].to_vec(),
        ended(1),
        ended(10),
    ];
    assert_eq!(read(&lines.concat()).unwrap().share(), 0.2);
}

#[test]
fn blocks_of_two_sizes_are_refused() {
    let ended = |seq, tokens: u32| {
        let blocks = json!({ "block-tokens": tokens, "blocks": "00000000000a" });
        vec![decision(seq, "mixed", 20_000, &to(1)), outcome(seq, &blocks)]
    };
    let refused = read(&[head(), ended(1, 16), ended(2, 32)].concat()).unwrap_err();
    assert!(
        refused.to_string().contains("blocks of 16 and of 32"),
        "{refused}"
    );
}

#[test]
fn the_facts_of_the_first_requests_are_of_them_alone() {
    let other = json!({ "policy": {
        "id": 1, "name": "other", "sha256": "cd", "version": "1", "params": "{}",
        "request-columns": [], "columns": [], "more-request-columns": [], "more-columns": [],
    } });
    let blocks = json!({ "block-tokens": 16, "blocks": "00000000000a" });
    let of = |seq, ended_us, more: &Value| vec![decision(seq, "mixed", ended_us, &to(1)), outcome(seq, more)];
    let lines = [
        head(),
        of(1, 20_000, &blocks),
        vec![other],
        of(2, 30_000, &json!({})),
        of(3, 40_000, &json!({})),
    ];
    let read = read(&lines.concat()).unwrap();
    let named = |most| {
        let facts = read.pools["chat"].first(most).unwrap();
        let (policy, placed) = facts.policy;
        (policy.name, placed, facts.requests, facts.with_blocks)
    };
    assert_eq!(named(Some(1)), ("mine".to_owned(), 1, 1, 1));
    assert_eq!(named(None), ("other".to_owned(), 2, 3, 1));
}
