//! Traces: one tree of spans for each request, and the context that engines are sent.

use std::collections::BTreeMap;

use bytes::Bytes;
use harness::{OtlpReceiver, SplitFleet, TestRouter, attribute, eventually, route_all};
use http::{Method, StatusCode};
use mock_engine::{MockEngine, PdDialect, RequestFault, Times};
use request_traces::TraceParent;
use request_traces::otlp::{Span, SpanKind, StatusCode as SpanState};
use serde_json::Value;

use crate::metrics::scrape;
use crate::metrics_page::{Family, Format, parse};
use crate::{chat, fast, fast_fleet, long_prompt, router_with};

const CHATS: &str = "/v1/chat/completions";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

async fn send(router: &TestRouter, headers: &[(&str, &str)], body: &Value) -> StatusCode {
    let body = Bytes::from(body.to_string());
    let sent = router.client.stream(Method::POST, CHATS, headers, body).await;
    sent.unwrap().whole().await.unwrap().status
}

/// Returns the spans of the next trace once its server span is there.
async fn next_trace(receiver: &OtlpReceiver) -> Vec<Span> {
    eventually("a trace arrives", || async { !receiver.spans().is_empty() }).await;
    receiver.take()
}

/// Checks that spans are one tree: the server span, and its children. Returns the names of the children.
#[track_caller]
fn tree(spans: &[Span]) -> Vec<&str> {
    let root = &spans[0];
    assert_eq!(root.kind(), SpanKind::Server, "{}", root.name);
    for span in spans {
        assert_eq!(span.trace_id, root.trace_id, "{}", span.name);
        assert!(
            span.start_time_unix_nano <= span.end_time_unix_nano,
            "{}",
            span.name
        );
        assert!(
            root.start_time_unix_nano <= span.start_time_unix_nano,
            "{}",
            span.name
        );
    }
    let children = &spans[1..];
    assert!(children.iter().all(|span| span.parent_span_id == root.span_id));
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), spans.len(), "ids are distinct");
    children.iter().map(|span| span.name.as_str()).collect()
}

/// Returns the spans of attempts on workers.
fn attempts(spans: &[Span]) -> Vec<&Span> {
    let attempts = spans.iter().filter(|span| span.kind() == SpanKind::Client);
    attempts.collect()
}

fn events(span: &Span) -> Vec<&str> {
    span.events.iter().map(|event| event.name.as_str()).collect()
}

fn state(span: &Span) -> Option<SpanState> {
    span.status.as_ref().map(request_traces::otlp::SpanStatus::code)
}

/// Returns the trace contexts of the requests that an engine received.
fn parents(engine: &MockEngine) -> Vec<TraceParent> {
    let requests = engine.requests(CHATS);
    let headers = requests
        .iter()
        .filter_map(|request| request.headers.get("traceparent"));
    headers
        .map(|header| TraceParent::parse(header.as_bytes()).unwrap())
        .collect()
}

#[tokio::test]
async fn a_request_is_one_tree_and_the_engine_continues_its_attempt() {
    let (receiver, fleet) = (OtlpReceiver::start().unwrap(), fast_fleet(1).await);
    let router = router_with(&receiver.toml("sample = 1"), &fleet, "cache-aware").await;
    for stream in [false, true] {
        assert_eq!(send(&router, &[], &chat(&long_prompt(1), stream)).await, 200);
        let spans = next_trace(&receiver).await;
        let names: Vec<_> = tree(&spans)
            .into_iter()
            .filter(|name| *name != "conductor.read")
            .collect();
        assert_eq!(names, ["conductor.tokens", "conductor.decide", "chat mock"]);
        let (root, decide) = (&spans[0], &spans[spans.len() - 2]);
        assert_eq!(root.name, "POST /v1/chat/completions");
        assert_eq!(attribute(root, "conductor.outcome"), "complete");
        assert_eq!(attribute(root, "conductor.pool"), "chat");
        assert_eq!(attribute(root, "http.response.status_code"), "200");
        assert_eq!(attribute(root, "conductor.late"), "");
        assert_eq!(attribute(decide, "conductor.policy"), "cache-aware");
        assert_eq!(attribute(decide, "conductor.verdict"), "route");
        assert_eq!(attribute(decide, "conductor.worker"), "w0");
        assert_eq!(attribute(decide, "conductor.candidates"), "1");
        let attempt = attempts(&spans)[0];
        assert_eq!(events(attempt), ["connected", "head", "first_byte", "last_byte"]);
        assert_eq!(attribute(attempt, "conductor.leg"), "whole");
        assert_eq!(attribute(attempt, "gen_ai.request.model"), "mock");
        assert_eq!(attribute(attempt, "gen_ai.request.stream"), stream.to_string());
        let parent = *parents(&fleet.engines[0]).last().unwrap();
        assert!(parent.is_sampled);
        assert_eq!(attempt.span_id, parent.span.bytes());
        assert_eq!(attempt.trace_id, parent.trace.bytes());
    }
}

/// Returns the traces of a family's exemplars.
fn exemplars<'a>(page: &'a BTreeMap<String, Family>, family: &str) -> Vec<&'a str> {
    let samples = page[family].samples.iter();
    samples.filter_map(|sample| sample.exemplar.as_deref()).collect()
}

#[tokio::test]
async fn histograms_have_the_exported_trace_as_their_exemplar() {
    let (receiver, fleet) = (OtlpReceiver::start().unwrap(), fast_fleet(1).await);
    let router = router_with(&receiver.toml("sample = 0"), &fleet, "round-robin").await;
    assert_eq!(send(&router, &[], &chat("hi", true)).await, 200);
    let page = || async { scrape(&router, "application/openmetrics-text").await };
    assert!(!page().await.contains("trace_id"), "the request was not sampled");

    send(&router, &[("traceparent", PARENT)], &chat("hi", true)).await;
    let page = parse(&page().await, Format::OpenMetrics);
    for family in [
        "conductor_time_to_first_token_seconds",
        "conductor_request_duration_seconds",
        "conductor_time_per_output_token_seconds",
        "conductor_stream_longest_pause_seconds",
    ] {
        assert_eq!(exemplars(&page, family), [&PARENT[3..35]], "{family}");
        assert_eq!(page[family].unit.as_deref(), Some("seconds"));
    }
    assert_eq!(page["conductor_body_bytes"].unit.as_deref(), Some("bytes"));
    let text = scrape(&router, "text/plain").await;
    assert!(!text.contains("trace_id") && !text.contains("# UNIT"), "{text}");
}

#[tokio::test]
async fn a_clients_context_is_continued_and_its_state_passed_on() {
    let (receiver, fleet) = (OtlpReceiver::start().unwrap(), fast_fleet(1).await);
    let router = router_with(&receiver.toml("sample = 0"), &fleet, "round-robin").await;
    let headers = [("traceparent", PARENT), ("tracestate", "vendor=1")];
    send(&router, &headers, &chat("hi", false)).await;
    let spans = next_trace(&receiver).await;
    tree(&spans);
    let client = TraceParent::parse(PARENT.as_bytes()).unwrap();
    assert_eq!(spans[0].trace_id, client.trace.bytes());
    assert_eq!(spans[0].parent_span_id, client.span.bytes());
    let sent = fleet.engines[0].requests(CHATS).pop().unwrap();
    assert_eq!(sent.headers["tracestate"], "vendor=1");
    assert_eq!(parents(&fleet.engines[0])[0].trace, client.trace);
}

#[tokio::test]
async fn a_request_that_is_not_sampled_has_no_span_and_engines_are_sent_its_flag() {
    let (receiver, fleet) = (OtlpReceiver::start().unwrap(), fast_fleet(1).await);
    let router = router_with(&receiver.toml("sample = 0"), &fleet, "round-robin").await;
    assert_eq!(send(&router, &[], &chat("hi", false)).await, 200);
    assert!(!parents(&fleet.engines[0])[0].is_sampled);
    // The next one is sampled: its trace is the first that arrives.
    send(&router, &[("x-conductor-explain", "1")], &chat("hi", false)).await;
    let spans = next_trace(&receiver).await;
    tree(&spans);
    assert_eq!(spans[0].trace_id, parents(&fleet.engines[0])[1].trace.bytes());
}

#[tokio::test]
async fn without_traces_the_headers_pass_untouched() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    let headers = [("traceparent", "of its own kind"), ("tracestate", "vendor=1")];
    send(&router, &headers, &chat("hi", false)).await;
    send(&router, &[], &chat("hi", false)).await;
    let sent = fleet.engines[0].requests(CHATS);
    assert_eq!(sent[0].headers["traceparent"], "of its own kind");
    assert_eq!(sent[0].headers["tracestate"], "vendor=1");
    assert!(!sent[1].headers.contains_key("traceparent"));
}

#[tokio::test]
async fn a_retried_request_is_exported_late_with_both_attempts() {
    let (receiver, fleet) = (OtlpReceiver::start().unwrap(), fast_fleet(2).await);
    let router = router_with(&receiver.toml("sample = 0"), &fleet, "round-robin").await;
    let fault = RequestFault::Status {
        status: StatusCode::SERVICE_UNAVAILABLE,
        retry_after: None,
    };
    fleet.engines[0].faults().on_requests(fault, Times::UntilCleared);
    for _ in 0..2 {
        assert_eq!(send(&router, &[], &chat("hi", false)).await, 200);
    }
    let spans = next_trace(&receiver).await;
    tree(&spans);
    assert_eq!(attribute(&spans[0], "conductor.late"), "true");
    let attempts = attempts(&spans);
    let workers: Vec<_> = attempts
        .iter()
        .map(|span| attribute(span, "conductor.worker"))
        .collect();
    assert_eq!(workers, ["w0", "w1"]);
    assert_eq!(state(attempts[0]), Some(SpanState::Error));
    assert_eq!(attribute(attempts[0], "error.type"), "503");
    assert_eq!(attribute(attempts[1], "http.request.resend_count"), "1");
    assert_eq!(state(attempts[1]), None);
    assert_eq!(state(&spans[0]), None, "the client got an answer");
}

#[tokio::test]
async fn a_failed_request_is_an_error_with_its_code() {
    let (receiver, fleet) = (OtlpReceiver::start().unwrap(), fast_fleet(1).await);
    let router = router_with(&receiver.toml("sample = 0"), &fleet, "round-robin").await;
    let fault = RequestFault::Cut { after_tokens: 2 };
    fleet.engines[0].faults().on_requests(fault, Times::Next(1));
    let stream = router.client.open(CHATS, &chat("hi", true)).await.unwrap();
    stream.whole().await.unwrap();
    let spans = next_trace(&receiver).await;
    tree(&spans);
    assert_eq!(state(&spans[0]), Some(SpanState::Error));
    assert_eq!(attribute(&spans[0], "conductor.outcome"), "upstream-error");
    assert_eq!(attribute(attempts(&spans)[0], "error.type"), "broken-off");

    let mut unknown = chat("hi", false);
    unknown["model"] = "nothing-like-it".into();
    assert_eq!(send(&router, &[], &unknown).await, 404);
    let spans = next_trace(&receiver).await;
    assert!(tree(&spans).iter().all(|name| *name == "conductor.read"));
    assert_eq!(attribute(&spans[0], "error.type"), "model_not_found");
    assert_eq!(state(&spans[0]), None);
}

#[tokio::test]
async fn a_client_that_leaves_is_no_error() {
    let (receiver, fleet) = (OtlpReceiver::start().unwrap(), fast_fleet(1).await);
    let router = router_with(&receiver.toml("sample = 1"), &fleet, "round-robin").await;
    let mut long = chat("hi", true);
    long["max_tokens"] = 2_000.into();
    let mut stream = router.client.open(CHATS, &long).await.unwrap();
    stream.chunk().await.unwrap().unwrap();
    drop(stream);
    let spans = next_trace(&receiver).await;
    tree(&spans);
    for span in [&spans[0], attempts(&spans)[0]] {
        assert_eq!(attribute(span, "error.type"), "client_left", "{}", span.name);
        assert_eq!(state(span), None);
    }
}

#[tokio::test]
async fn a_split_request_has_both_legs_below_its_own_span() {
    for dialect in [PdDialect::Nixl, PdDialect::Mooncake, PdDialect::Sglang] {
        let receiver = OtlpReceiver::start().unwrap();
        let fleet = SplitFleet::start(dialect, (1, 1), |config| fast(0, config)).await;
        let fleet = fleet.unwrap();
        let route = "[[routes]]\npool = \"p\"\npolicy = \"round-robin\"\n";
        let pool = fleet.pool_toml("p", ", alone = false");
        let toml = format!("{}{pool}{route}", receiver.toml("sample = 1"));
        let router = TestRouter::start(&toml).await.unwrap();
        assert_eq!(send(&router, &[], &chat(&long_prompt(1), true)).await, 200);
        let spans = next_trace(&receiver).await;
        tree(&spans);
        let legs = attempts(&spans);
        let kinds: Vec<_> = legs.iter().map(|leg| attribute(leg, "conductor.leg")).collect();
        assert_eq!(kinds, ["prefill", "decode"], "{dialect:?}");
        assert_eq!(legs[0].links[0].span_id, legs[1].span_id);
        for (leg, engine) in legs.iter().zip([&fleet.prefill[0], &fleet.decode[0]]) {
            let parent = parents(engine)[0];
            assert_eq!(leg.span_id, parent.span.bytes(), "{dialect:?}");
        }
        assert_eq!(state(&spans[0]), None);
    }
}

#[tokio::test]
async fn a_request_that_waits_has_a_span_of_its_wait() {
    let receiver = OtlpReceiver::start().unwrap();
    let fleet = harness::Fleet::start(1, |_, _| {}).await.unwrap();
    let toml = format!(
        "{}[pools.chat.admission]\nrequests = 1\n{}{}",
        receiver.toml("sample = 1"),
        fleet.workers_toml(),
        route_all("round-robin"),
    );
    let router = TestRouter::start(&toml).await.unwrap();
    let hi = chat("hi", false);
    let both = tokio::join!(send(&router, &[], &hi), send(&router, &[], &hi));
    assert_eq!(both, (StatusCode::OK, StatusCode::OK));
    eventually("one of them has waited", || async {
        receiver.spans().iter().any(|span| span.name == "conductor.queue")
    })
    .await;
}

#[tokio::test]
async fn a_shadows_decision_has_a_trace_of_its_own_that_links_to_the_request() {
    let (receiver, fleet) = (OtlpReceiver::start().unwrap(), fast_fleet(2).await);
    let toml = format!(
        "{}{}{}shadow = [\"round-robin\"]\nshadow-sample = 1.0\n",
        receiver.toml("sample = 1"),
        fleet.workers_toml(),
        route_all("cache-aware"),
    );
    let router = TestRouter::start(&toml).await.unwrap();
    assert_eq!(send(&router, &[], &chat("hi", false)).await, 200);
    let find = |name: &'static str| {
        let spans = receiver.spans().into_iter();
        spans.filter(|span| span.name == name).collect::<Vec<_>>()
    };
    eventually("both traces arrive", || async {
        !find("conductor.shadow").is_empty() && !find("POST /v1/chat/completions").is_empty()
    })
    .await;
    let (shadow, request) = (
        &find("conductor.shadow")[0],
        &find("POST /v1/chat/completions")[0],
    );
    assert_ne!(shadow.trace_id, request.trace_id);
    assert!(shadow.parent_span_id.is_empty());
    assert_eq!(shadow.links[0].trace_id, request.trace_id);
    assert_eq!(shadow.links[0].span_id, request.span_id);
    assert_eq!(attribute(shadow, "conductor.policy"), "round-robin");
    assert!(["agreed", "differed"].contains(&attribute(shadow, "conductor.result").as_str()));
    assert!(attribute(shadow, "conductor.worker").starts_with('w'));
}

#[tokio::test]
async fn the_server_span_has_its_stages_and_the_page_that_explains_the_request() {
    let (receiver, fleet) = (OtlpReceiver::start().unwrap(), fast_fleet(1).await);
    let toml = format!("{}[record]\nexplain = 10\n", receiver.toml("sample = 1"));
    let router = router_with(&toml, &fleet, "cache-aware").await;
    let headers = [("x-request-id", "traced-1"), ("x-conductor-explain", "1")];
    assert_eq!(send(&router, &headers, &chat("hi", true)).await, 200);
    let spans = next_trace(&receiver).await;
    let path = attribute(&spans[0], "conductor.explain");
    assert_eq!(path, "/admin/explain/traced-1");
    for stage in ["read", "queue", "decide"] {
        let seconds = attribute(&spans[0], &format!("conductor.{stage}_seconds"));
        assert!(
            seconds.parse::<f64>().is_ok_and(|seconds| seconds >= 0.0),
            "{stage}: {seconds}"
        );
    }
    let page = router.admin(&path).await.unwrap();
    let stages: Vec<_> = page["stages"].as_array().unwrap().iter().collect();
    let named = |name: &str| stages.iter().find(|stage| stage["stage"] == name);
    let end = |stage: &Value| stage["start_s"].as_f64().unwrap() + stage["duration_s"].as_f64().unwrap();
    let (connect, first_byte) = (named("connect").unwrap(), named("first_byte").unwrap());
    assert!((end(connect) - first_byte["start_s"].as_f64().unwrap()).abs() < 1e-6);
}

#[tokio::test]
async fn a_collector_that_is_gone_affects_no_request_and_losses_are_counted() {
    let fleet = fast_fleet(1).await;
    let address = harness::refused_address().unwrap();
    let traces = format!("[traces]\nendpoint = \"http://{address}\"\nsample = 1\nqueue = 1\nbatch = 1\n");
    let router = router_with(&traces, &fleet, "round-robin").await;
    for _ in 0..20 {
        assert_eq!(send(&router, &[], &chat("hi", false)).await, 200);
    }
    let dropped = router.metric("conductor_traces_total{result=\"dropped\"}").await;
    // One is being sent, one waits.
    assert!(dropped.unwrap() >= Some(1.0));
}

#[tokio::test]
async fn no_span_has_a_part_of_prompt_key_header_or_query() {
    const MARKER: &str = "marker-5f2c";
    let (receiver, fleet) = (OtlpReceiver::start().unwrap(), fast_fleet(1).await);
    let router = router_with(&receiver.toml("sample = 1"), &fleet, "cache-aware").await;
    let mut body = chat(&format!("{MARKER} {}", long_prompt(1)), true);
    body["user"] = MARKER.into();
    let key = format!("Bearer {MARKER}");
    let headers = [
        ("authorization", key.as_str()),
        ("x-secret", MARKER),
        ("x-session-id", MARKER),
        ("tracestate", "marker-5f2c=1"),
        ("traceparent", PARENT),
    ];
    let path = format!("{CHATS}?key={MARKER}");
    let body = Bytes::from(body.to_string());
    let sent = router.client.stream(Method::POST, &path, &headers, body).await;
    sent.unwrap().whole().await.unwrap();
    let spans = next_trace(&receiver).await;
    assert!(spans.len() >= 3, "{}", spans.len());
    let text = format!("{spans:?}");
    assert!(!text.contains(MARKER), "{text}");
    assert!(
        text.contains("gen_ai.conversation.id"),
        "the session is there as a hash"
    );
}
