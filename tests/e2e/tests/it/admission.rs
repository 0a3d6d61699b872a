//! Budgets, the queue and its order, early rejection, and streams that are kept alive.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use harness::{Answer, Client, Fleet, TestRouter, eventually, route_all};
use http::{Method, StatusCode};
use mock_engine::{CostModel, MockConfig, RequestFault, Times};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{chat, fast, fast_fleet};

pub(crate) const CHAT: &str = "/v1/chat/completions";
const HEADERS: &str = "priority-header = \"x-priority\"\ntenant-header = \"x-tenant\"\n";

/// Returns the configuration of a router over a fleet, with keys of the pool and of its admission, and of the route.
fn config(fleet: &Fleet, pool: &str, admission: &str, route: &str) -> String {
    format!(
        "[pools.chat]\n{pool}\n[pools.chat.admission]\n{HEADERS}{admission}\n{}{}{route}\n",
        fleet.workers_toml(),
        route_all("round-robin"),
    )
}

pub(crate) async fn start(fleet: &Fleet, pool: &str, admission: &str, route: &str) -> TestRouter {
    TestRouter::start(&config(fleet, pool, admission, route))
        .await
        .unwrap()
}

async fn send_request(client: &Client, headers: &[(&str, &str)], body: &Value) -> Answer {
    let body = Bytes::from(body.to_string());
    let stream = client.stream(Method::POST, CHAT, headers, body).await.unwrap();
    stream.whole().await.unwrap()
}

/// A request under way; dropped, its client leaves.
pub(crate) struct Sent(JoinSet<Answer>);

impl Sent {
    fn begin(answer: impl Future<Output = Answer> + Send + 'static) -> Self {
        let mut task = JoinSet::new();
        task.spawn(answer);
        Self(task)
    }

    pub(crate) async fn answer(mut self) -> Answer {
        self.0.join_next().await.unwrap().unwrap()
    }
}

/// Sends in the background, and waits until the router has it: under way, or in the queue.
pub(crate) async fn send(router: &TestRouter, text: &str, headers: &[(&str, &str)]) -> Sent {
    let (client, body) = (router.client.clone(), chat(text, false));
    let headers: Vec<(String, String)> = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let there = known(router).await + 1;
    let sent = Sent::begin(async move {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        send_request(&client, &headers, &body).await
    });
    eventually("the router has it", || async { known(router).await == there }).await;
    sent
}

async fn pool(router: &TestRouter) -> Value {
    router.admin("/status").await.unwrap()["pools"][0].clone()
}

/// Returns the number of requests under way and in the queue.
pub(crate) async fn known(router: &TestRouter) -> u64 {
    let pool = pool(router).await;
    pool["queued"].as_u64().unwrap() + pool["budget"]["requests"]["used"].as_u64().unwrap()
}

async fn metric(router: &TestRouter, name: &str) -> f64 {
    router.metric(name).await.unwrap().unwrap_or(0.0)
}

/// Returns the engine's requests in order: the last words of the conversations.
pub(crate) fn received(fleet: &Fleet) -> Vec<String> {
    let requests = fleet.engines[0].requests(CHAT);
    let words = requests.iter().map(|request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        body["messages"][0]["content"].as_str().unwrap().to_owned()
    });
    words.collect()
}

pub(crate) fn hang(fleet: &Fleet) {
    let faults = fleet.engines[0].faults();
    faults.on_requests(RequestFault::Hang, Times::UntilCleared);
}

#[track_caller]
fn check_refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
    let error = answer.json().unwrap();
    assert_eq!(error["error"]["code"], code, "{error}");
    let after: u64 = answer.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
}

#[tokio::test]
async fn requests_over_the_budget_are_queued_and_admitted_by_priority() {
    let fleet = fast_fleet(1).await;
    let router = start(&fleet, "", "requests = 2", "").await;
    hang(&fleet);
    let mut sent = Vec::new();
    for text in ["a", "b"] {
        sent.push(send(&router, text, &[]).await);
    }
    eventually("both are at the worker", || async { received(&fleet).len() == 2 }).await;
    for (text, class) in [("low", "-3"), ("plain", "0"), ("high", "9"), ("higher", "10")] {
        sent.push(send(&router, text, &[("x-priority", class)]).await);
    }
    let shown = pool(&router).await;
    assert_eq!(shown["budget"]["requests"], json!({ "used": 2, "limit": 2 }));
    let waiting = json!({ "sheddable": 1, "standard": 1, "preferred": 2 });
    assert_eq!(shown["budget"]["waiting"], waiting);
    assert_eq!(received(&fleet).len(), 2, "the budget is never exceeded");
    // One at a time from here on, so that the order at the engine is that of the router.
    router
        .save_config(&config(&fleet, "", "requests = 1", ""))
        .unwrap();
    router
        .admin_shows("/status", "the budget is smaller", |page| {
            page["pools"][0]["budget"]["requests"]["limit"] == 1
        })
        .await;
    fleet.engines[0].faults().clear();
    for answer in join_all(sent.into_iter().map(Sent::answer)).await {
        assert_eq!(answer.status, StatusCode::OK);
    }
    assert_eq!(received(&fleet)[2..], ["higher", "high", "plain", "low"]);
    eventually("everything is given back", || async { known(&router).await == 0 }).await;
    assert_eq!(
        metric(
            &router,
            "conductor_admission_total{pool=\"chat\",result=\"held\"}"
        )
        .await,
        4.0
    );
}

#[tokio::test]
async fn tenants_share_by_what_they_were_served_not_by_how_much_they_request() {
    let fleet = fast_fleet(1).await;
    let router = start(&fleet, "", "requests = 1", "").await;
    hang(&fleet);
    let mut sent = vec![send(&router, "first", &[("x-tenant", "greedy")]).await];
    for text in ["g1", "g2", "g3"] {
        sent.push(send(&router, text, &[("x-tenant", "greedy")]).await);
    }
    for text in ["m1", "m2", "m3"] {
        sent.push(send(&router, text, &[("x-tenant", "modest")]).await);
    }
    fleet.engines[0].faults().clear();
    for answer in join_all(sent.into_iter().map(Sent::answer)).await {
        assert_eq!(answer.status, StatusCode::OK);
    }
    let order = received(&fleet);
    let modest = |until: usize| order[..until].iter().filter(|text| text.starts_with('m')).count();
    assert!(
        order[1].starts_with('m'),
        "who had nothing yet is next: {order:?}"
    );
    assert!(modest(4) >= 2 && modest(4) < 4, "then they take turns: {order:?}");
}

#[tokio::test]
async fn a_full_queue_refuses_and_sheds_who_may_be_shed() {
    let fleet = fast_fleet(1).await;
    let router = start(&fleet, "queue-limit = 1", "requests = 1", "").await;
    hang(&fleet);
    let inside = send(&router, "inside", &[]).await;
    let sheddable = send(&router, "sheddable", &[("x-priority", "-1")]).await;
    let refused = send_request(&router.client, &[("x-priority", "-1")], &chat("too", false)).await;
    check_refused(&refused, 429, "queue_full");
    let (client, body) = (router.client.clone(), chat("important", false));
    let important = Sent::begin(async move { send_request(&client, &[], &body).await });
    check_refused(&sheddable.answer().await, 429, "shed");
    fleet.engines[0].faults().clear();
    assert_eq!(inside.answer().await.status, StatusCode::OK);
    assert_eq!(important.answer().await.status, StatusCode::OK);
    for result in ["queue-full", "shed"] {
        let name = format!("conductor_admission_total{{pool=\"chat\",result=\"{result}\"}}");
        assert_eq!(metric(&router, &name).await, 1.0, "{result}");
        let name = format!("conductor_requests_total{{pool=\"chat\",outcome=\"{result}\"}}");
        assert_eq!(metric(&router, &name).await, 1.0, "{result}");
    }
}

#[tokio::test]
async fn a_request_refused_by_a_full_queue_is_not_tokenized() {
    let fleet = fast_fleet(1).await;
    let toml = config(&fleet, "queue-limit = 1", "requests = 1", "");
    let router = TestRouter::start(&toml.replace("round-robin", "cache-aware"))
        .await
        .unwrap();
    hang(&fleet);
    let inside = send(&router, "inside", &[]).await;
    let waiting = send(&router, "waiting", &[]).await;
    let tokenized = async || {
        let page = router.admin.get("/metrics").await.unwrap().text();
        let lines = page
            .lines()
            .filter(|line| line.starts_with("conductor_tokenized_total{"));
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        counts.sum::<f64>()
    };
    let before = tokenized().await;
    check_refused(
        &send_request(&router.client, &[], &chat("too many", false)).await,
        429,
        "queue_full",
    );
    assert_eq!((before, tokenized().await), (2.0, 2.0));
    fleet.engines[0].faults().clear();
    assert_eq!(inside.answer().await.status, StatusCode::OK);
    assert_eq!(waiting.answer().await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_wait_ends_with_the_clients_time_or_the_queues() {
    let fleet = fast_fleet(1).await;
    let router = start(
        &fleet,
        "queue-timeout = \"20ms\"",
        "requests = 1",
        "start-timeout = \"1h\"",
    )
    .await;
    hang(&fleet);
    let inside = send(&router, "inside", &[]).await;
    let refused = send_request(&router.client, &[], &chat("waits", false)).await;
    check_refused(&refused, 503, "queue_timeout");
    router
        .save_config(&config(&fleet, "", "requests = 1", ""))
        .unwrap();
    router
        .admin_shows("/admin/config", "the longer wait", |page| page["generation"] == 2)
        .await;
    let mut milliseconds = 30;
    let refused = loop {
        let time = format!("{milliseconds}ms");
        let headers = [("x-request-timeout", time.as_str())];
        let refused = send_request(&router.client, &headers, &chat("waits", false)).await;
        // A stalled router may enter it into the queue too late.
        if refused.status != StatusCode::GATEWAY_TIMEOUT || milliseconds > 10_000 {
            break refused;
        }
        milliseconds *= 2;
    };
    check_refused(&refused, 503, "queue_timeout");
    assert_eq!(received(&fleet), ["inside"]);
    drop(inside);
    eventually("who left gave its place back", || async {
        known(&router).await == 0
    })
    .await;
    let late = send_request(
        &router.client,
        &[("x-request-timeout", "30ms")],
        &chat("hangs", false),
    )
    .await;
    assert_eq!(late.status, StatusCode::GATEWAY_TIMEOUT, "{}", late.text());
    eventually("what was given up gave its place back", || async {
        known(&router).await == 0
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_frees_its_place_and_a_larger_budget_lets_the_rest_in() {
    let fleet = fast_fleet(1).await;
    let router = start(&fleet, "queue-limit = 2", "requests = 1", "").await;
    hang(&fleet);
    let inside = send(&router, "inside", &[]).await;
    let gone = send(&router, "gone", &[("x-priority", "5")]).await;
    let stays = send(&router, "stays", &[]).await;
    drop(gone);
    eventually("it is gone", || async { known(&router).await == 2 }).await;
    let other = send(&router, "other", &[]).await;
    router
        .save_config(&config(&fleet, "queue-limit = 2", "requests = 3", ""))
        .unwrap();
    eventually("all are at the worker", || async { received(&fleet).len() == 3 }).await;
    fleet.engines[0].faults().clear();
    for sent in [inside, stays, other] {
        assert_eq!(sent.answer().await.status, StatusCode::OK);
    }
    assert!(!received(&fleet).contains(&"gone".to_owned()));
}

#[tokio::test]
async fn a_budget_of_tokens_counts_prompt_and_answer_and_lets_one_in_that_is_larger() {
    let fleet = fast_fleet(1).await;
    let router = start(&fleet, "", "tokens = 100", "").await;
    hang(&fleet);
    let large = send(&router, &"word ".repeat(400), &[]).await;
    let used = pool(&router).await["budget"]["tokens"]["used"].as_u64().unwrap();
    assert!(used > 400, "{used}");
    let small = send(&router, "small", &[]).await;
    assert_eq!(pool(&router).await["queued"], 1);
    fleet.engines[0].faults().clear();
    for sent in [large, small] {
        assert_eq!(sent.answer().await.status, StatusCode::OK);
    }
    eventually("everything is given back", || async {
        pool(&router).await["budget"]["tokens"]["used"] == 0
    })
    .await;
}

#[tokio::test]
async fn an_automatic_budget_follows_the_workers_in_service() {
    let fleet = fast_fleet(2).await;
    let admission = "requests = \"auto\"\nrequests-per-worker = 3";
    let router = start(&fleet, "", admission, "").await;
    let is = async |limit: u64| pool(&router).await["budget"]["requests"]["limit"] == limit;
    eventually("both workers are in service", || is(6)).await;
    fleet.engines[0].faults().refuse_connections().await.unwrap();
    eventually("one worker is out", || async {
        send_request(&router.client, &[], &chat("hi", false)).await;
        is(3).await
    })
    .await;
    fleet.engines[0].faults().accept_connections().await.unwrap();
    eventually("it is back", || async {
        send_request(&router.client, &[], &chat("hi", false)).await;
        is(6).await
    })
    .await;
}

#[tokio::test]
async fn a_request_predicted_to_miss_its_ttft_target_is_refused_and_none_before_anything_is_known() {
    /// Samples before a time is predicted.
    const ENOUGH: usize = 16;
    let slow = |_, config: &mut MockConfig| {
        config.cost = CostModel {
            prefill_token_ms: 0.2,
            ..CostModel::default()
        };
    };
    let fleet = Fleet::start(1, slow).await.unwrap();
    // Every prompt takes longer, and so does the prediction for prompts that are all as long.
    let route = "ttft-target = \"1ms\"";
    let router = start(&fleet, "", "early-rejection = 1.0", route).await;
    let mut answered = 0;
    let refused = loop {
        let prompt: String = (0..40).map(|word| format!("n{answered:02}w{word:02} ")).collect();
        let answer = send_request(&router.client, &[], &chat(&prompt, true)).await;
        if answer.status != StatusCode::OK {
            break answer;
        }
        answered += 1;
        assert!(answered < 100, "all of them were answered");
    };
    check_refused(&refused, 429, "too_slow");
    assert!(answered >= ENOUGH, "refused after {answered}");
    let name = "conductor_admission_total{pool=\"chat\",result=\"rejected-early\"}";
    assert_eq!(metric(&router, name).await, 1.0);
}

#[tokio::test]
async fn a_stream_without_data_is_kept_alive_in_the_queue_and_at_the_worker() {
    let fleet = fast_fleet(1).await;
    let router = start(&fleet, "sse-keep-alive = \"20ms\"", "requests = 1", "").await;
    hang(&fleet);
    let mut first = router.client.open(CHAT, &chat("first", true)).await.unwrap();
    let mut second = router.client.open(CHAT, &chat("second", true)).await.unwrap();
    for stream in [&mut first, &mut second] {
        assert_eq!(stream.status, StatusCode::OK);
        assert!(stream.header("content-type").starts_with("text/event-stream"));
        assert!(stream.headers.contains_key("x-request-id"));
        for _ in 0..2 {
            assert_eq!(stream.chunk().await.unwrap().unwrap(), ": keep-alive\n\n");
        }
    }
    assert_eq!(received(&fleet), ["first"], "the other one waits for the budget");
    fleet.engines[0].faults().clear();
    for stream in [first, second] {
        let text = stream.whole().await.unwrap().text();
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        let events = text.split("\n\n").filter(|event| !event.is_empty());
        assert!(
            events
                .clone()
                .all(|event| event.starts_with("data: ") || event == ": keep-alive"),
            "{text}"
        );
    }
    eventually("everything is given back", || async { known(&router).await == 0 }).await;
    assert!(metric(&router, "conductor_keep_alive_comments_total{pool=\"chat\"}").await >= 4.0);
}

#[tokio::test]
async fn failures_behind_a_kept_alive_stream_are_retried_or_reported_in_it() {
    let fleet = Fleet::start(2, fast).await.unwrap();
    let pool = "sse-keep-alive = \"20ms\"\nqueue-timeout = \"200ms\"";
    let router = start(&fleet, pool, "requests = 1", "").await;
    for engine in &fleet.engines {
        engine
            .faults()
            .on_requests(RequestFault::Hang, Times::UntilCleared);
    }
    let mut stream = router.client.open(CHAT, &chat("first", true)).await.unwrap();
    assert_eq!(stream.chunk().await.unwrap().unwrap(), ": keep-alive\n\n");
    let in_vain = router.client.open(CHAT, &chat("second", true)).await.unwrap();
    let text = in_vain.whole().await.unwrap().text();
    assert!(
        text.contains("\"code\":\"queue_timeout\"") && !text.contains("[DONE]"),
        "{text}"
    );
    // The engine with the first request is killed; the other one answers.
    let has_it = |engine: &mock_engine::MockEngine| !engine.requests(CHAT).is_empty();
    eventually("one of them has it", || async {
        fleet.engines.iter().any(has_it)
    })
    .await;
    let (with, without): (Vec<_>, Vec<_>) = fleet.engines.iter().partition(|engine| has_it(engine));
    without[0].faults().clear();
    with[0].faults().refuse_connections().await.unwrap();
    let text = stream.whole().await.unwrap().text();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
}

#[tokio::test]
async fn a_refusal_of_the_worker_behind_a_stream_that_is_kept_alive_is_an_event() {
    let fleet = fast_fleet(1).await;
    let router = start(&fleet, "sse-keep-alive = \"20ms\"", "requests = 1", "").await;
    hang(&fleet);
    let inside = send(&router, "inside", &[]).await;
    let mut stream = router.client.open(CHAT, &chat("hi", true)).await.unwrap();
    assert_eq!(stream.chunk().await.unwrap().unwrap(), ": keep-alive\n\n");
    let fault = RequestFault::Status {
        status: StatusCode::BAD_REQUEST,
        retry_after: None,
    };
    fleet.engines[0].faults().on_requests(fault, Times::UntilCleared);
    drop(inside);
    let text = stream.whole().await.unwrap().text();
    assert!(
        text.contains("\"code\":\"worker_refused\"") && !text.contains("[DONE]"),
        "{text}"
    );
}

#[tokio::test]
async fn many_requests_over_a_small_budget_are_all_answered() {
    let fleet = fast_fleet(2).await;
    let router = Arc::new(start(&fleet, "", "requests = 3\ntokens = 200", "").await);
    let one = |number: usize| {
        let router = Arc::clone(&router);
        async move {
            let (class, tenant) = ((number % 5).to_string(), (number % 3).to_string());
            let headers = [("x-priority", class.as_str()), ("x-tenant", tenant.as_str())];
            let body = chat(&format!("hello {number}"), number.is_multiple_of(2));
            send_request(&router.client, &headers, &body).await.status
        }
    };
    for status in join_all((0..200).map(one)).await {
        assert_eq!(status, StatusCode::OK);
    }
    tokio::time::timeout(Duration::from_secs(30), async {
        eventually("everything is given back", || async { known(&router).await == 0 }).await;
    })
    .await
    .unwrap();
}
