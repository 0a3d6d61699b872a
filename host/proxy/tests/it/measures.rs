//! Tests of the measures of a request: by model, status and stage.

use http::StatusCode;

use crate::client::{chat, post, send};
use crate::eventually;
use crate::policy::{Scripted, route};
use crate::router::{Router, router};
use crate::tokens::hold_two_blocks;
use crate::worker::{Worker, answered_by_hand, json, streaming};

fn completion(model: &str) -> http::Request<bytes::Bytes> {
    post(
        "/v1/completions",
        format!(r#"{{"model":"{model}","prompt":[1,2,3,4,5,6,7,8,9,10]}}"#),
    )
}

/// Returns the answers of pool `main` with these labels.
fn answered(router: &Router, model: &str, endpoint: &str, code: &str) -> f64 {
    router.metric(&format!(
        r#"conductor_requests_answered_total{{pool="main",model="{model}",endpoint="{endpoint}",code="{code}"}}"#
    ))
}

#[tokio::test]
async fn only_models_that_the_router_has_names_of_are_labels() {
    let worker =
        Worker::start(|_| async { json(200, r#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#) })
            .await;
    let router = router()
        .serving("a", &worker.url(), &["llama"])
        .worker("b", &worker.url())
        .start()
        .await;
    for model in ["llama", "made-up-1", "made-up-2"] {
        send(router.address, completion(model)).await.text().await;
    }
    assert_eq!(answered(&router, "llama", "completion", "200"), 1.0);
    assert_eq!(answered(&router, "other", "completion", "200"), 2.0);
    for (name, model, count) in [
        ("request_duration_seconds_count", "llama", 1.0),
        ("request_duration_seconds_count", "other", 2.0),
        ("output_tokens_total", "llama", 4.0),
        ("output_tokens_total", "other", 8.0),
        ("time_to_first_token_seconds_count", "llama", 0.0),
    ] {
        let series = format!(r#"conductor_{name}{{pool="main",model="{model}"}}"#);
        assert_eq!(router.metric(&series), count, "{series}");
    }
}

#[tokio::test]
async fn an_answer_is_counted_by_its_status_whoever_gives_it() {
    let worker = Worker::start(|_| async { json(418, "{}") }).await;
    let router = router().serving("a", &worker.url(), &["m"]).start().await;
    assert_eq!(send(router.address, chat()).await.status, 418);
    assert_eq!(
        send(router.address, completion("n")).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(answered(&router, "m", "chat", "4xx"), 1.0);
    assert_eq!(answered(&router, "other", "completion", "404"), 1.0);
    assert_eq!(
        send(router.address, post("/v1/embeddings", "{")).await.status,
        400
    );
    let unrouted =
        r#"conductor_requests_answered_total{pool="",model="other",endpoint="embedding",code="400"}"#;
    assert_eq!(router.metric(unrouted), 1.0);
}

#[tokio::test]
async fn a_stream_is_measured_from_its_first_piece_to_its_last() {
    let (worker, mut pens) = streaming().await;
    let router = router().serving("a", &worker.url(), &["m"]).start().await;
    let in_flight = || router.pool_metric("requests_in_flight");
    let answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    assert_eq!(in_flight(), 1.0);
    for event in ["data: {}\n\n", "data: {}\n\n", "data: [DONE]\n\n"] {
        pen.send(Ok(event.into())).await.unwrap();
    }
    drop(pen);
    answer.text().await;
    eventually("the request has ended", || in_flight() == 0.0).await;
    let of_model = |name: &str| router.metric(&format!(r#"conductor_{name}{{pool="main",model="m"}}"#));
    assert_eq!(of_model("time_to_first_token_seconds_count"), 1.0);
    assert_eq!(of_model("time_per_output_token_seconds_count"), 1.0);
    assert_eq!(of_model("output_tokens_total"), 3.0);
    let pauses = r#"conductor_stream_longest_pause_seconds_count{pool="main"}"#;
    assert_eq!(router.metric(pauses), 1.0);
    for (stage, count) in [
        ("read", 1.0),
        ("tokens", 0.0),
        ("queue", 1.0),
        ("decide", 1.0),
        ("connect", 1.0),
        ("first-byte", 1.0),
    ] {
        let series = format!(r#"conductor_stage_seconds_count{{pool="main",stage="{stage}"}}"#);
        assert_eq!(router.metric(&series), count, "{series}");
    }
    assert_eq!(router.pool_metric("overhead_seconds_count"), 1.0);
    assert_eq!(router.pool_metric("decision_candidates_sum"), 1.0);
}

#[tokio::test]
async fn stages_of_a_client_that_leaves_while_its_request_is_placed_count() {
    let (worker, mut arrivals) = answered_by_hand().await;
    let router = router().worker("a", &worker.url()).start().await;
    {
        let request = std::pin::pin!(send(router.address, chat()));
        let arrived = std::pin::pin!(arrivals.recv());
        futures_util::future::select(request, arrived).await;
    }
    let decided = r#"conductor_stage_seconds_count{pool="main",stage="decide"}"#;
    eventually("the request has ended", || router.metric(decided) == 1.0).await;
    assert_eq!(router.pool_metric("overhead_seconds_count"), 1.0);
}

#[tokio::test]
async fn the_reuse_funnel_has_what_was_there_what_was_chosen_and_what_the_engine_reports() {
    let usage =
        r#"{"usage":{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    let worker = Worker::start(move |_| async move { json(200, usage) }).await;
    let policy = Scripted::seeing(&[], &["prefix.device-tokens"], |_| Ok(route(1)));
    let router = router()
        .worker("a", &worker.url())
        .worker("b", &worker.url())
        .policy(policy)
        .with(crate::tokens::querying_worker)
        .start()
        .await;
    hold_two_blocks(&router, "a");
    for worker in ["a", "b"] {
        router.feeds.set(router.id(worker), true);
    }
    send(router.address, completion("m")).await.text().await;
    for (name, tokens) in [
        ("prompt", 10.0),
        ("best_match", 8.0),
        ("matched", 0.0),
        ("reported_prompt", 10.0),
        ("cached", 4.0),
    ] {
        let series = format!(r#"conductor_{name}_tokens_total{{pool="main"}}"#);
        assert_eq!(router.metric(&series), tokens, "{series}");
    }
}
