//! The access log: one line for each request, whatever its end.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use harness::{SplitFleet, TestRouter, eventually, route_all};
use http::{Method, StatusCode};
use mock_engine::{PdDialect, RequestFault, Times};
use serde_json::{Value, json};

use crate::affinity::{caught_up, informed};
use crate::{chat, fast, fast_fleet, long_prompt, router_over, router_with};

const CHATS: &str = "/v1/chat/completions";
const LOG: &str = "[log]\naccess = \"access.jsonl\"\n";
/// SHA-256 of `test`.
const HASH_OF_TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn read(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    complete.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the lines once there are that many.
async fn lines(router: &TestRouter, count: usize) -> Vec<Value> {
    let file = router.path("access.jsonl");
    eventually(&format!("{count} lines"), || async { read(&file).len() >= count }).await;
    let lines = read(&file);
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

/// Sends a chat with a key and a request id, and reads its answer.
async fn send(router: &TestRouter, key: Option<&str>, id: &str, body: &Value) -> StatusCode {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let mut headers = vec![("x-request-id", id)];
    headers.extend(bearer.iter().map(|bearer| ("authorization", bearer.as_str())));
    let body = Bytes::from(body.to_string());
    let sent = router.client.stream(Method::POST, CHATS, &headers, body).await;
    sent.unwrap().whole().await.unwrap().status
}

#[track_caller]
fn check_number(line: &Value, field: &str, least: f64) {
    let number = line[field].as_f64();
    assert!(
        number.is_some_and(|number| number >= least),
        "{field} of {line:#}"
    );
}

#[tokio::test]
async fn a_request_has_one_line_with_its_placement_stages_and_tokens() {
    let fleet = fast_fleet(2).await;
    let patient = format!("{LOG}[pools.chat]\ntokenize-timeout = \"10s\"\n");
    let router = informed(router_with(&patient, &fleet, "cache-aware").await).await;
    let prompt = long_prompt(1);
    assert_eq!(send(&router, None, "plain", &chat(&prompt, false)).await, 200);
    lines(&router, 1).await;
    caught_up(&router, &fleet).await;
    let mut streamed = chat(&prompt, true);
    streamed["stream_options"] = json!({ "include_usage": true });
    assert_eq!(send(&router, None, "streamed", &streamed).await, 200);
    let lines = lines(&router, 2).await;
    for (line, (id, stream)) in lines.iter().zip([("plain", false), ("streamed", true)]) {
        assert_eq!(line["request_id"], id);
        assert_eq!(line["stream"], stream);
        assert_eq!(line["method"], "POST");
        assert_eq!(line["path"], CHATS);
        assert_eq!(line["model"], "mock");
        assert_eq!(line["pool"], "chat");
        assert_eq!(line["route"], 1);
        assert_eq!(line["policy"], "cache-aware");
        assert!(line["policy_version"].is_string(), "{line:#}");
        assert_eq!(line["fallback"], false);
        assert_eq!(line["status"], 200);
        assert_eq!(line["outcome"], "complete");
        assert_eq!(line["attempts"], 1);
        assert_eq!(line["generation"], 1);
        assert_eq!(line["output_tokens"], 4);
        assert!(line["finish"].is_string(), "{line:#}");
        assert!(line["worker"].as_str().unwrap().starts_with('w'), "{line:#}");
        for absent in ["client", "error_code", "prefill_worker", "arm"] {
            assert_eq!(line[absent], Value::Null, "{line:#}");
        }
        for (field, least) in [
            ("read_s", 0.0),
            ("queue_s", 0.0),
            ("tokens_s", 0.0),
            ("decide_s", 0.0),
            ("connect_s", 0.0),
            ("first_byte_s", 0.0),
            ("duration_s", 1e-6),
            ("bytes_in", 500.0),
            ("bytes_out", 50.0),
            ("prompt_tokens", 100.0),
        ] {
            check_number(line, field, least);
        }
    }
    for field in ["ttft_s", "tpot_s", "longest_pause_s"] {
        assert_eq!(lines[0][field], Value::Null);
        check_number(&lines[1], field, 0.0);
    }
    check_number(&lines[1], "cached_tokens", 16.0);
    eventually("the index has the prompt", || async {
        send(&router, None, "again", &chat(&prompt, false)).await;
        let lines = read(&router.path("access.jsonl"));
        let last = lines.last().unwrap();
        last["matched_tokens"].as_u64() >= Some(16)
    })
    .await;
}

#[tokio::test]
async fn a_split_request_has_both_workers() {
    let fleet = SplitFleet::start(PdDialect::Nixl, (1, 1), |config| fast(0, config))
        .await
        .unwrap();
    let route = "[[routes]]\npool = \"p\"\npolicy = \"round-robin\"\n";
    let toml = format!("{LOG}{}{route}", fleet.pool_toml("p", ", alone = false"));
    let router = TestRouter::start(&toml).await.unwrap();
    assert_eq!(
        send(&router, None, "split", &chat(&long_prompt(1), true)).await,
        200
    );
    let lines = lines(&router, 1).await;
    assert_eq!(lines[0]["worker"], "p-d0");
    assert_eq!(lines[0]["prefill_worker"], "p-p0");
    assert_eq!(lines[0]["attempts"], 1);
    assert_eq!(lines[0]["outcome"], "complete");
}

#[tokio::test]
async fn refused_requests_have_a_line_with_their_code() {
    let fleet = fast_fleet(1).await;
    let clients =
        format!("{LOG}[clients.team]\nkey-sha256 = [\"{HASH_OF_TEST}\"]\nrequests-per-minute = 3\n");
    let router = router_with(&clients, &fleet, "round-robin").await;
    let hi = chat("hi", false);
    let mut unknown = hi.clone();
    unknown["model"] = "nothing-like-it".into();
    send(&router, None, "no-key", &hi).await;
    send(&router, Some("wrong"), "wrong-key", &hi).await;
    send(&router, Some("test"), "unknown-model", &unknown).await;
    send(&router, Some("test"), "no-object", &json!([])).await;
    send(&router, Some("test"), "complete", &hi).await;
    send(&router, Some("test"), "limited", &hi).await;
    let get = router.client.stream(Method::GET, CHATS, &[], Bytes::new()).await;
    let get = get.unwrap().whole().await.unwrap();
    let made_id = get.header("x-request-id");
    assert!(made_id.starts_with("req-"), "{made_id}");
    let lines = lines(&router, 7).await;
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |field: &str| line[field].as_str().unwrap_or_default();
            (
                text("request_id"),
                line["status"].as_u64().unwrap(),
                text("outcome"),
                text("error_code"),
                text("client"),
                text("model"),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("no-key", 401, "unauthorized", "invalid_api_key", "", ""),
            ("wrong-key", 401, "unauthorized", "invalid_api_key", "", ""),
            (
                "unknown-model",
                404,
                "invalid",
                "model_not_found",
                "team",
                "other"
            ),
            ("no-object", 400, "invalid", "invalid_json", "team", ""),
            ("complete", 200, "complete", "", "team", "mock"),
            ("limited", 429, "limited", "rate_limit_exceeded", "team", ""),
            (made_id, 405, "invalid", "method_not_allowed", "", ""),
        ]
    );
}

#[tokio::test]
async fn a_client_that_leaves_and_a_stream_that_breaks_off_have_a_line() {
    let fleet = fast_fleet(1).await;
    let router = router_with(LOG, &fleet, "round-robin").await;
    let faults = fleet.engines[0].faults();
    faults.hold_streams_after(1);
    let mut stream = router.client.open(CHATS, &chat("hi", true)).await.unwrap();
    stream.chunk().await.unwrap().unwrap();
    drop(stream);
    let left = lines(&router, 1).await.remove(0);
    faults.clear();
    assert_eq!(
        (&left["outcome"], &left["status"]),
        (&json!("client-left"), &json!(200))
    );
    check_number(&left, "ttft_s", 0.0);
    check_number(&left, "bytes_out", 1.0);

    let cut = RequestFault::Cut { after_tokens: 2 };
    faults.on_requests(cut, Times::Next(1));
    let stream = router.client.open(CHATS, &chat("hi", true)).await.unwrap();
    stream.whole().await.unwrap();
    let broken = lines(&router, 2).await.remove(1);
    assert_eq!(broken["outcome"], "upstream-error");
    assert_eq!(broken["worker"], "w0");
}

#[tokio::test]
async fn a_retry_counts_as_an_attempt_and_the_last_worker_is_named() {
    let fleet = fast_fleet(2).await;
    let router = router_with(LOG, &fleet, "round-robin").await;
    let fault = RequestFault::Status {
        status: StatusCode::SERVICE_UNAVAILABLE,
        retry_after: None,
    };
    fleet.engines[0].faults().on_requests(fault, Times::UntilCleared);
    for number in 0..2 {
        let status = send(&router, None, &format!("r{number}"), &chat("hi", false)).await;
        assert_eq!(status, 200);
    }
    let lines = lines(&router, 2).await;
    let retried: Vec<_> = lines.iter().filter(|line| line["attempts"] == 2).collect();
    assert!(!retried.is_empty(), "{lines:#?}");
    assert!(
        retried
            .iter()
            .all(|line| line["worker"] == "w1" && line["status"] == 200),
        "{retried:#?}"
    );
}

#[tokio::test]
async fn a_reload_turns_the_log_on_and_off_and_changes_its_share() {
    let fleet = fast_fleet(1).await;
    let rest = format!("{}{}", fleet.workers_toml(), route_all("round-robin"));
    let router = router_over(&fleet, "round-robin").await;
    let configured = async |log: &str, generation: u64| {
        router.save_config(&format!("{log}{rest}")).unwrap();
        let is_there = |page: &Value| page["generation"] == generation;
        router.admin_shows("/admin/config", "the edit", is_there).await;
    };
    let hi = chat("hi", false);
    send(&router, None, "before", &hi).await;
    configured(LOG, 2).await;
    send(&router, None, "on", &hi).await;
    configured(&format!("{LOG}access-sample = 0\n"), 3).await;
    send(&router, None, "complete", &hi).await;
    send(&router, None, "failed", &json!([])).await;
    configured("", 4).await;
    send(&router, None, "off", &hi).await;
    configured("[log]\naccess = \"other.jsonl\"\n", 5).await;
    send(&router, None, "elsewhere", &hi).await;
    let other = router.path("other.jsonl");
    eventually("the other file has a line", || async { !read(&other).is_empty() }).await;
    let ids = |lines: Vec<Value>| -> Vec<String> {
        lines
            .iter()
            .map(|line| line["request_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(lines(&router, 2).await), ["on", "failed"]);
    assert_eq!(ids(read(&other)), ["elsewhere"]);
    let metric = async |name: &str| router.metric(name).await.unwrap().unwrap_or_default();
    // A line is counted once it is in the file.
    eventually("the lines are counted", || async {
        metric("conductor_access_log_lines_total").await == 3.0
    })
    .await;
    assert_eq!(metric("conductor_access_log_dropped_total").await, 0.0);
}

#[tokio::test]
async fn a_file_that_is_renamed_is_begun_again_without_a_loss() {
    let fleet = fast_fleet(1).await;
    let router = router_with(LOG, &fleet, "round-robin").await;
    let hi = chat("hi", false);
    send(&router, None, "first", &hi).await;
    lines(&router, 1).await;
    let (file, renamed) = (router.path("access.jsonl"), router.path("renamed.jsonl"));
    fs::rename(&file, &renamed).unwrap();
    let mut sent = 1;
    while !file.exists() {
        sent += 1;
        send(&router, None, "next", &hi).await;
    }
    eventually("no line is lost", || async {
        read(&file).len() + read(&renamed).len() == sent
    })
    .await;
}
