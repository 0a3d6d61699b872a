//! Tests of requests for a response by its id: their time, their tokens, and the health of the worker.

use std::time::Duration;

use http::{Method, StatusCode};
use tokio::sync::mpsc;

use crate::client::{Answer, chat, get, post, send};
use crate::clients::{limited, of};
use crate::eventually;
use crate::router::{Builder, Router, router};
use crate::worker::{Pen, Received, Worker, json, written};

const QUEUED: &str = r#"{"id":"resp_1","status":"queued","usage":null}"#;
const COMPLETED: &str = r#"{"id":"resp_1","status":"completed","usage":{"input_tokens":1000,
    "input_tokens_details":{"cached_tokens":600},"output_tokens":50,"total_tokens":1050}}"#;

/// Starts a worker that makes the response `resp_1`, keeps it, and fails at completions.
async fn keeping(made: &'static str) -> Worker {
    Worker::start(move |request| async move {
        match (request.method, request.uri.path()) {
            (Method::POST, "/v1/responses") => json(200, made),
            (Method::GET, "/v1/responses/resp_1") => json(200, COMPLETED),
            (_, "/v1/chat/completions") => json(500, "{}"),
            _ => json(200, "{}"),
        }
    })
    .await
}

async fn over(worker: &Worker, change: impl FnOnce(&mut Builder)) -> Router {
    let router = router().worker("a", &worker.url()).with(change).start().await;
    let made = send(
        router.address,
        post("/v1/responses", r#"{"model":"m","input":"hi"}"#),
    )
    .await;
    assert_eq!(made.status, StatusCode::OK);
    made.text().await;
    router
}

async fn poll(router: &Router) {
    let answer = send(router.address, get("/v1/responses/resp_1")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.text().await, COMPLETED);
}

/// Returns the tokens that client `a` is charged: the prompts' and the answers'.
fn charged(router: &Router) -> [f64; 2] {
    ["prompt", "output"].map(|kind| {
        router.metric(&format!(
            r#"conductor_client_tokens_total{{client="a",kind="{kind}"}}"#
        ))
    })
}

/// Returns the prompt's tokens, those of them that were cached, and the answer's.
fn tokens(router: &Router) -> [f64; 3] {
    [
        router.pool_metric("reported_prompt_tokens_total"),
        router.pool_metric("cached_tokens_total"),
        router.metric(r#"conductor_worker_output_tokens_total{worker="a"}"#),
    ]
}

#[tokio::test]
async fn the_tokens_of_a_response_are_counted_once_however_often_it_is_polled() {
    for (made, at_first) in [(COMPLETED, [1000.0, 600.0, 50.0]), (QUEUED, [0.0; 3])] {
        let worker = keeping(made).await;
        let router = over(&worker, |_| {}).await;
        assert_eq!(tokens(&router), at_first);
        for _ in 0..3 {
            poll(&router).await;
            assert_eq!(tokens(&router), [1000.0, 600.0, 50.0], "{made}");
        }
    }
}

#[tokio::test]
async fn the_output_of_a_background_response_is_charged_to_its_client_once() {
    let worker = keeping(QUEUED).await;
    let router = limiting(&worker).await;
    let request = of("a", post("/v1/responses", r#"{"model":"m","input":"hi"}"#));
    send(router.address, request).await.text().await;
    let [prompt, output] = charged(&router);
    for _ in 0..3 {
        let answer = send(router.address, of("a", get("/v1/responses/resp_1"))).await;
        answer.text().await;
        assert_eq!(charged(&router), [prompt, output + 50.0]);
    }
    let answer = send(router.address, of("a", chat())).await;
    let left: f64 = answer.headers["x-ratelimit-remaining-tokens"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(left <= 10_000.0 - prompt - output - 50.0, "{left}");
}

/// Response that is being streamed to client `a`.
struct OpenResponse {
    _worker: Worker,
    router: Router,
    streamed: Answer,
    pen: Pen,
}

/// Starts a worker whose streams are written by hand. Requests for which `whole` is some have that answer.
async fn streaming(
    whole: impl Fn(&Received) -> Option<&'static str> + Send + Sync + 'static,
) -> (Worker, mpsc::Receiver<Pen>) {
    let (pens, taken) = mpsc::channel::<Pen>(1);
    let worker = Worker::start(move |request| {
        let (pens, whole) = (pens.clone(), whole(&request));
        async move {
            if let Some(whole) = whole {
                return json(200, whole);
            }
            let (pen, response) = written("text/event-stream");
            pens.send(pen).await.unwrap();
            response
        }
    })
    .await;
    (worker, taken)
}

/// Starts a router before a worker, with the limits of client `a`.
async fn limiting(worker: &Worker) -> Router {
    let limits = |with: &mut Builder| with.clients = vec![limited("a", 60, 10_000, 3)];
    router().worker("a", &worker.url()).with(limits).start().await
}

/// Writes a piece of a stream, and reads it.
async fn pass(pen: &Pen, streamed: &mut Answer, piece: &'static str) {
    pen.send(Ok(piece.into())).await.unwrap();
    streamed.piece().await.unwrap().unwrap();
}

/// Streams these pieces of a background response to client `a`.
async fn streamed(pieces: &[&'static str]) -> OpenResponse {
    streamed_and_kept(pieces, COMPLETED).await
}

/// Does the same, with this answer by the response's id.
async fn streamed_and_kept(pieces: &[&'static str], kept: &'static str) -> OpenResponse {
    let (worker, mut taken) = streaming(move |request| (request.method == Method::GET).then_some(kept)).await;
    let router = limiting(&worker).await;
    let body = r#"{"model":"m","input":"hi","background":true,"stream":true}"#;
    let mut streamed = send(router.address, of("a", post("/v1/responses", body))).await;
    let pen = taken.recv().await.unwrap();
    for piece in pieces {
        pass(&pen, &mut streamed, piece).await;
    }
    OpenResponse {
        _worker: worker,
        router,
        streamed,
        pen,
    }
}

/// Streams these pieces of a background response to client `a`, which leaves then.
async fn left_after(pieces: &[&'static str]) -> (Worker, Router) {
    let open = streamed(pieces).await;
    drop(open.streamed);
    eventually("the client has left", || charged(&open.router)[1] > 0.0).await;
    (open._worker, open.router)
}

/// First two events of a streamed response.
const STARTED: &str = "data: {\"response\":{\"id\":\"resp_1\",\"usage\":null}}\n\ndata: {}\n\n";

/// Last event of a streamed response.
const ENDED: &str = "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":1000,\
    \"input_tokens_details\":{\"cached_tokens\":600},\"output_tokens\":50}}}\n\n";

/// Requests the response by its id while its own answer is open. Returns that answer.
async fn polled_while_open() -> OpenResponse {
    polled_and_kept(COMPLETED).await
}

/// Does the same, with this answer by the response's id.
async fn polled_and_kept(kept: &'static str) -> OpenResponse {
    let open = streamed_and_kept(&[STARTED], kept).await;
    let answer = send(open.router.address, of("a", get("/v1/responses/resp_1"))).await;
    answer.text().await;
    assert_eq!(charged(&open.router)[1], 0.0);
    open
}

#[tokio::test]
async fn a_response_that_is_requested_while_it_is_streamed_is_counted_once() {
    let open = polled_while_open().await;
    open.pen.send(Ok(ENDED.into())).await.unwrap();
    drop(open.pen);
    open.streamed.text().await;
    let router = &open.router;
    eventually("the stream has ended", || charged(router)[1] > 0.0).await;
    assert_eq!(
        (charged(router)[1], tokens(router)),
        (50.0, [1000.0, 600.0, 50.0])
    );
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_is_charged_what_it_had_by_the_id_meanwhile() {
    let open = polled_while_open().await;
    drop(open.streamed);
    let router = &open.router;
    eventually("the client has left", || charged(router)[1] > 0.0).await;
    assert_eq!((charged(router)[1], tokens(router)[2]), (50.0, 50.0));
}

#[tokio::test]
async fn an_implausible_output_by_the_id_is_neither_counted_nor_charged() {
    const KEPT: &str = r#"{"id":"resp_1","status":"completed","usage":{"output_tokens":1000000000}}"#;
    let open = polled_and_kept(KEPT).await;
    drop(open.streamed);
    let router = &open.router;
    eventually("the client has left", || charged(router)[1] > 0.0).await;
    assert_eq!((charged(router)[1], tokens(router)[2]), (2.0, 2.0));
}

#[tokio::test]
async fn a_stream_that_its_worker_breaks_off_counts_what_answers_by_the_id_had() {
    let open = polled_while_open().await;
    drop(open.pen);
    open.streamed.text().await;
    let router = &open.router;
    eventually("the stream has ended", || charged(router)[1] > 0.0).await;
    assert_eq!((charged(router)[1], tokens(router)[2]), (50.0, 50.0));
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_by_id_is_charged_what_passed() {
    let whole = |request: &Received| match (&request.method, request.uri.query()) {
        (&Method::POST, _) => Some(QUEUED),
        (_, Some(_)) => None,
        _ => Some(COMPLETED),
    };
    let (worker, mut taken) = streaming(whole).await;
    let router = limiting(&worker).await;
    let body = r#"{"model":"m","input":"hi","background":true}"#;
    send(router.address, of("a", post("/v1/responses", body)))
        .await
        .text()
        .await;
    let [_, made] = charged(&router);
    let follow = || send(router.address, of("a", get("/v1/responses/resp_1?stream=true")));
    // The second stream has the tokens of the first, and one more.
    for (pieces, expected) in [(1, 2.0), (1, 2.0), (2, 4.0)] {
        let mut streamed = follow().await;
        let pen = taken.recv().await.unwrap();
        for _ in 0..pieces {
            pass(&pen, &mut streamed, STARTED).await;
        }
        drop(streamed);
        let is_over = || router.pool_metric("requests_in_flight") == 0.0;
        eventually("the client has left", is_over).await;
        let is_charged = || charged(&router)[1] == made + expected;
        eventually("the client is charged", is_charged).await;
    }
    let answer = send(router.address, of("a", get("/v1/responses/resp_1"))).await;
    answer.text().await;
    assert_eq!((charged(&router)[1], tokens(&router)[2]), (made + 50.0, 50.0));
}

#[tokio::test]
async fn a_stream_by_id_that_is_left_while_the_own_answer_is_open_is_counted_with_that() {
    let (worker, mut taken) = streaming(|_| None).await;
    let router = limiting(&worker).await;
    let body = r#"{"model":"m","input":"hi","background":true,"stream":true}"#;
    let mut own = send(router.address, of("a", post("/v1/responses", body))).await;
    let own_pen = taken.recv().await.unwrap();
    pass(&own_pen, &mut own, STARTED).await;
    let request = of("a", get("/v1/responses/resp_1?stream=true"));
    let mut by_id = send(router.address, request).await;
    let pen = taken.recv().await.unwrap();
    for _ in 0..2 {
        pass(&pen, &mut by_id, STARTED).await;
    }
    drop(by_id);
    let is_over = || router.pool_metric("requests_in_flight") == 1.0;
    eventually("the client has left the stream by id", is_over).await;
    assert_eq!(charged(&router)[1], 0.0);
    own_pen.send(Ok(ENDED.into())).await.unwrap();
    drop(own_pen);
    own.text().await;
    eventually("the own stream has ended", || charged(&router)[1] > 0.0).await;
    assert_eq!((charged(&router)[1], tokens(&router)[2]), (50.0, 50.0));
}

#[tokio::test]
async fn a_client_that_leaves_a_streamed_background_response_is_charged_the_rest_by_its_id() {
    let (_worker, router) = left_after(&[STARTED]).await;
    let [prompt, output] = charged(&router);
    assert_eq!((output, tokens(&router)), (2.0, [0.0, 0.0, 2.0]));
    // A request by id has no model.
    let of_models = || {
        let of_model = |model: &str| {
            router.metric(&format!(
                r#"conductor_output_tokens_total{{pool="main",model="{model}"}}"#
            ))
        };
        of_model("m") + of_model("other")
    };
    assert_eq!(of_models(), 2.0);
    for _ in 0..3 {
        let answer = send(router.address, of("a", get("/v1/responses/resp_1"))).await;
        answer.text().await;
        assert_eq!(charged(&router), [prompt, 50.0]);
        assert_eq!((tokens(&router), of_models()), ([1000.0, 600.0, 50.0], 50.0));
    }
}

#[tokio::test]
async fn a_usage_in_the_clients_own_json_does_not_change_what_a_response_costs() {
    // The engine repeats the tools of the request before its usage.
    const STARTED: &str =
        "data: {\"response\":{\"id\":\"resp_1\",\"usage\":{\"output_tokens\":1000000}}}\n\n";
    let (_worker, router) = left_after(&[STARTED, "data: {}\n\n", "data: {}\n\n"]).await;
    assert_eq!(charged(&router)[1], 3.0);
    let answer = send(router.address, of("a", get("/v1/responses/resp_1"))).await;
    answer.text().await;
    assert_eq!(charged(&router)[1], 50.0);
}

#[tokio::test]
async fn the_response_of_another_client_can_be_neither_continued_nor_claimed() {
    let worker = keeping(COMPLETED).await;
    let both = ["a", "b"].map(|name| limited(name, 60, 100_000, 3));
    let router = router()
        .worker("a", &worker.url())
        .with(|with| with.clients = both.into())
        .start()
        .await;
    let made =
        |client: &str, body: &'static str| send(router.address, of(client, post("/v1/responses", body)));
    let read = |client: &str| send(router.address, of(client, get("/v1/responses/resp_1")));
    made("a", r#"{"model":"m","input":"hi"}"#).await.text().await;
    let continued = made(
        "b",
        r#"{"model":"m","input":"hi","previous_response_id":"resp_1"}"#,
    )
    .await;
    assert_eq!(continued.status, StatusCode::NOT_FOUND);
    assert!(continued.text().await.contains("response_not_found"));
    let render = |client: &str| {
        let body = r#"{"model":"m","input":"hi","previous_response_id":"resp_1"}"#;
        send(router.address, of(client, post("/v1/responses/render", body)))
    };
    assert_eq!(render("b").await.status, StatusCode::NOT_FOUND);
    assert_eq!(render("a").await.status, StatusCode::OK);
    // This worker gives each response the same id, as vLLM does with the `request_id` of a body.
    let claimed = made("b", r#"{"model":"m","input":"hi","request_id":"resp_1"}"#).await;
    assert_eq!(claimed.status, StatusCode::OK);
    claimed.text().await;
    assert_eq!(read("b").await.status, StatusCode::NOT_FOUND);
    assert_eq!(read("a").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_continued_response_is_rendered_by_its_worker() {
    let workers = [keeping(COMPLETED).await, keeping(COMPLETED).await];
    let other = workers[1].url();
    let router = over(&workers[0], |with| *with = with.clone().worker("b", &other)).await;
    let made = workers
        .iter()
        .position(|worker| worker.received().len() == 1)
        .unwrap();
    for _ in 0..4 {
        let body = r#"{"model":"m","input":"hi","previous_response_id":"resp_1"}"#;
        let answer = send(router.address, post("/v1/responses/render", body)).await;
        assert_eq!(answer.status, StatusCode::OK);
        answer.text().await;
    }
    assert_eq!(workers[made].received().len(), 5);
    assert_eq!(workers[1 - made].received().len(), 0);
}

#[tokio::test]
async fn polls_keep_no_failing_worker_in_service() {
    let (worker, other) = (keeping(COMPLETED).await, Worker::named("b").await);
    let other = other.url();
    let router = over(&worker, |with| {
        *with = with.clone().worker("b", &other);
        with.health.server_errors = 2;
    })
    .await;
    for _ in 0..2 {
        poll(&router).await;
        send(router.address, chat()).await.text().await;
    }
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 1.0);
}

#[tokio::test]
async fn a_request_by_id_ends_in_the_time_of_a_request() {
    let worker = Worker::start(|request| async move {
        match request.uri.path() {
            "/v1/responses" => json(200, COMPLETED),
            "/v1/responses/resp_1" => std::future::pending().await,
            _ => json(200, "{}"),
        }
    })
    .await;
    let short = |with: &mut Builder| with.limits.request_timeout = Some(Duration::from_millis(300));
    let router = over(&worker, short).await;
    let answer = send(router.address, get("/v1/responses/resp_1")).await;
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert!(answer.text().await.contains("request_timeout"));
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 0.0);
}
