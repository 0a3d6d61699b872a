//! Tests of sequential legs (nixl and stores) without failures.

use std::time::Duration;

use http::StatusCode;
use proxy::Authorization;
use routing::Dialect;

use crate::client::{End, post, send};
use crate::clock::StoppedClock;
use crate::eventually;
use crate::pair::{
    BODY, FIRST, PARAMS, begun, header, one_pair, parsed, prefill_answer, prefilled, prefilling, request,
    with_header,
};
use crate::worker::{BrokenOff, Worker, answered_by_hand, is_taken, json, streaming, whole};

#[tokio::test]
async fn transfer_parameters_of_prefill_reach_the_decode_leg_verbatim() {
    let (prefill, decode) = (prefilling().await, Worker::named("d").await);
    let router = one_pair(Dialect::Nixl, &prefill, &decode).start().await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.header("x-conductor-worker"), Some("d"));
    assert_eq!(answer.header("x-conductor-prefill-worker"), Some("p"));
    assert_eq!(answer.text().await, "d");
    let first = parsed(&prefill.received()[0]);
    assert_eq!(first["max_tokens"], 1);
    assert_eq!(first["kv_transfer_params"]["do_remote_decode"], true);
    let second = String::from_utf8(decode.received()[0].body.to_vec()).unwrap();
    assert!(
        second.contains(&format!("\"kv_transfer_params\":{PARAMS}")),
        "{second}"
    );
    assert_eq!(parsed(&decode.received()[0])["max_tokens"], 9);
    assert_eq!(
        router.metric(r#"conductor_pd_placements_total{pool="main",shape="pair"}"#),
        1.0
    );
}

#[tokio::test]
async fn a_store_needs_no_parameters_and_decode_gets_the_clients_bytes() {
    let (prefill, decode) = (prefilling().await, Worker::named("d").await);
    let router = one_pair(Dialect::Store, &prefill, &decode).start().await;
    send(router.address, request()).await.text().await;
    assert_eq!(parsed(&prefill.received()[0])["max_tokens"], 1);
    assert_eq!(decode.received()[0].body, BODY);
}

#[tokio::test]
async fn both_legs_carry_the_requests_id_its_trace_and_the_pools_key() {
    for (authorization, key) in [
        (Authorization::Pass, Some("Bearer client")),
        (Authorization::Drop, None),
        (Authorization::bearer("own").unwrap(), Some("Bearer own")),
    ] {
        let (prefill, decode) = (prefilling().await, Worker::named("d").await);
        let router = one_pair(Dialect::Nixl, &prefill, &decode)
            .with(|builder| builder.authorization = authorization)
            .start()
            .await;
        let request = with_header(request(), "x-request-id", "mine");
        let request = with_header(request, "traceparent", "00-1-2-01");
        let request = with_header(request, "authorization", "Bearer client");
        let request = with_header(request, "x-data-parallel-rank", "7");
        send(router.address, request).await.text().await;
        for leg in [&prefill.received()[0], &decode.received()[0]] {
            assert_eq!(header(leg, "x-request-id"), Some("mine"));
            assert_eq!(header(leg, "traceparent"), Some("00-1-2-01"));
            assert_eq!(header(leg, "authorization"), key);
            assert_eq!(header(leg, "x-data-parallel-rank"), None);
            assert_eq!(leg.uri.path(), "/v1/completions");
        }
    }
}

#[tokio::test]
async fn both_workers_are_booked_while_the_prompt_is_computed() {
    let (prefill, mut prefills) = answered_by_hand().await;
    let (decode, mut pens) = streaming().await;
    let router = one_pair(Dialect::Nixl, &prefill, &decode).start().await;
    let loads = || (router.in_flight("p"), router.in_flight("d"));
    let answered = async {
        let prefill = prefills.recv().await.unwrap();
        assert_eq!(loads(), (1, 1));
        assert!(router.worker("p").load().read().prefill_tokens > 0);
        assert_eq!(
            router.worker("d").load().read().prefill_tokens,
            0,
            "another computes it"
        );
        prefill.send(prefilled()).unwrap();
        let pen = pens.recv().await.unwrap();
        assert_eq!(loads(), (0, 1));
        pen.send(Ok("data: [DONE]\n\n".into())).await.unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "data: [DONE]\n\n");
    assert_eq!(loads(), (0, 0));
    assert_eq!(router.outcomes("complete"), 1.0);
}

#[tokio::test]
async fn a_client_that_leaves_during_the_prefill_leg_frees_everything() {
    let (prefill, mut prefills) = answered_by_hand().await;
    let decode = Worker::named("d").await;
    let router = one_pair(Dialect::Nixl, &prefill, &decode).start().await;
    let _never = tokio::select! {
        _ = send(router.address, request()) => unreachable!("no worker answers"),
        queried = prefills.recv() => queried.unwrap(),
    };
    eventually("the prefill leg is closed", || prefill.busy() == 0).await;
    eventually("the leases are given back", || {
        (router.in_flight("p"), router.in_flight("d")) == (0, 0)
    })
    .await;
    assert!(decode.received().is_empty());
    assert_eq!(router.outcomes("client-left"), 1.0);
}

#[tokio::test]
async fn a_client_that_leaves_the_stream_frees_everything() {
    let (decode, mut pens) = begun().await;
    let prefill = prefilling().await;
    let router = one_pair(Dialect::Nixl, &prefill, &decode).start().await;
    let mut answer = send(router.address, request()).await;
    let pen = pens.recv().await.unwrap();
    let _pen = pen;
    answer.piece().await.unwrap().unwrap();
    drop(answer);
    eventually("the decode leg is closed", || decode.busy() == 0).await;
    eventually("the leases are given back", || {
        (router.in_flight("p"), router.in_flight("d")) == (0, 0)
    })
    .await;
    assert_eq!(router.outcomes("client-left"), 1.0);
}

#[tokio::test]
async fn a_decode_stream_that_breaks_ends_with_an_error_event() {
    let (decode, mut pens) = begun().await;
    let prefill = prefilling().await;
    let router = one_pair(Dialect::Nixl, &prefill, &decode).start().await;
    let answer = send(router.address, request()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Err(BrokenOff)).await.unwrap();
    let (text, end) = answer.rest().await;
    assert!(
        text.starts_with(FIRST) && text.contains("worker_broke_off"),
        "{text}"
    );
    assert_eq!(end, End::Clean);
    assert_eq!(decode.received().len(), 1, "what has begun is not begun again");
    assert_eq!(router.outcomes("upstream-error"), 1.0);
}

#[tokio::test]
async fn a_prefill_answer_without_parameters_is_counted_and_decode_computes_the_prompt_itself() {
    let prefill = Worker::start(|_| async { prefill_answer("length", "null") }).await;
    // After attempts on two workers, there is still one response.
    let (first, second) = (super::troubled(503).await, Worker::named("e").await);
    let router = one_pair(Dialect::Nixl, &prefill, &first)
        .decode("e", &second.url())
        .start()
        .await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.text().await, "e");
    assert_eq!(second.received()[0].body, BODY);
    for name in [
        "conductor_pd_handover_failures_total",
        "conductor_pd_unhanded_total",
    ] {
        assert_eq!(router.metric(&format!(r#"{name}{{pool="main"}}"#)), 1.0, "{name}");
    }
}

#[tokio::test]
async fn a_prefill_leg_that_takes_too_long_is_a_timeout_and_its_worker_rests() {
    let prefill = Worker::start(|_| std::future::pending()).await;
    let decode = Worker::named("d").await;
    let router = one_pair(Dialect::Nixl, &prefill, &decode)
        .with_pd(|pd| pd.prefill_timeout = Duration::from_millis(50))
        .start()
        .await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert!(answer.text().await.contains("\"code\":\"worker_timeout\""));
    assert!(decode.received().is_empty());
    assert_eq!(router.outcomes("first-byte-timeout"), 1.0);
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="p"}"#), 1.0);
    assert_eq!((router.in_flight("p"), router.in_flight("d")), (0, 0));
    eventually("the prefill leg is closed", || prefill.busy() == 0).await;
}

#[tokio::test]
async fn a_prefill_answer_that_stalls_is_a_timeout_too() {
    let (prefill, mut pens) = crate::worker::writing("application/json").await;
    let decode = Worker::named("d").await;
    let router = one_pair(Dialect::Nixl, &prefill, &decode)
        .with_pd(|pd| pd.prefill_timeout = Duration::from_millis(500))
        .start()
        .await;
    let clock = StoppedClock::stop();
    let written = async {
        let pen = pens.recv().await.unwrap();
        pen.send(Ok("{\"half\":".into())).await.unwrap();
        eventually("it is written", || is_taken(&pen)).await;
        clock.settle().await;
        clock.go_on();
        pen
    };
    let (answer, _pen) = futures_util::join!(send(router.address, request()), written);
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert!(decode.received().is_empty());
    assert_eq!(
        router.metric(r#"conductor_worker_failures_total{worker="p",kind="idle-timeout"}"#),
        1.0
    );
}

#[tokio::test]
async fn a_store_reports_how_many_tokens_the_prefill_worker_had_cached() {
    const WHOLE: &str = r#"{"usage":{"prompt_tokens_details":{"cached_tokens":170}}}"#;
    let expected = WHOLE.replace("170", "64");
    let decode = Worker::start(|_| async { json(200, WHOLE) }).await;
    let prefill = prefilling().await;
    let router = one_pair(Dialect::Store, &prefill, &decode).start().await;
    let answer = send(router.address, request()).await;
    assert_eq!(
        answer.header("content-length"),
        None,
        "the worker's length is not ours"
    );
    assert_eq!(answer.text().await, expected);
    assert_eq!(router.pool_metric("cached_tokens_total"), 64.0);
}

#[tokio::test]
async fn a_store_reports_it_in_streams_too_however_they_are_cut() {
    let (decode, mut pens) = begun().await;
    let prefill = prefilling().await;
    let router = one_pair(Dialect::Store, &prefill, &decode).start().await;
    let answer = send(router.address, request()).await;
    let pen = pens.recv().await.unwrap();
    for piece in [
        "data: {\"usage\":{\"prompt_tokens_details\":{\"cached_to",
        "kens\":17",
        "0}}}\n\ndata: [DONE]\n\n",
    ] {
        pen.send(Ok(piece.into())).await.unwrap();
    }
    drop(pen);
    let last = "data: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\ndata: [DONE]\n\n";
    assert_eq!(answer.text().await, [FIRST, last].concat());
}

/// Starts a prefill worker whose message counts 32 of 170 tokens as cached.
async fn message_prefilling() -> Worker {
    let answer =
        r#"{"type":"message","usage":{"input_tokens":138,"output_tokens":1,"cache_read_input_tokens":32}}"#;
    Worker::start(move |_| async move { json(200, answer) }).await
}

#[tokio::test]
async fn a_store_reports_the_prefill_workers_counts_in_messages() {
    const WHOLE: &str = r#"{"type":"message","content":[{"type":"tool_use","input":{"input_tokens":2}}],"usage":{"input_tokens":2,"output_tokens":5,"cache_read_input_tokens":168}}"#;
    let expected = WHOLE.replace(r#""usage":{"input_tokens":2"#, r#""usage":{"input_tokens":138"#);
    let expected = expected.replace("168", "32");
    let (prefill, decode) = (
        message_prefilling().await,
        Worker::start(|_| async { json(200, WHOLE) }).await,
    );
    let router = one_pair(Dialect::Store, &prefill, &decode).start().await;
    let message = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello, world"}]}"#;
    let answer = send(router.address, post("/v1/messages", message)).await;
    assert_eq!(answer.header("x-conductor-prefill-worker"), Some("p"));
    assert_eq!(answer.text().await, expected);
    assert_eq!(router.pool_metric("cached_tokens_total"), 32.0);
    assert_eq!(router.pool_metric("reported_prompt_tokens_total"), 170.0);
}

#[tokio::test]
async fn a_store_reports_them_in_streams_of_messages_too() {
    let stream = |input: u64, cached: u64| {
        format!(
            "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"usage\":{{\"input_tokens\":{input},\"output_tokens\":0}}}}}}\n\n\
             event: message_delta\ndata: {{\"type\":\"message_delta\",\"usage\":{{\"input_tokens\":{input},\"cache_read_input_tokens\":{cached},\"output_tokens\":5}}}}\n\n\
             event: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n"
        )
    };
    let (decode, mut pens) = streaming().await;
    let prefill = message_prefilling().await;
    let router = one_pair(Dialect::Store, &prefill, &decode).start().await;
    let message =
        r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello, world"}],"stream":true}"#;
    let written = async {
        let pen = pens.recv().await.unwrap();
        for piece in stream(2, 168).as_bytes().chunks(40) {
            pen.send(Ok(piece.to_vec().into())).await.unwrap();
        }
    };
    let sent = async {
        send(router.address, post("/v1/messages", message))
            .await
            .text()
            .await
    };
    let (text, ()) = futures_util::join!(sent, written);
    assert_eq!(text, stream(138, 32));
}

#[tokio::test]
async fn cached_tokens_of_nixl_and_of_failures_are_left_unchanged() {
    for (dialect, status) in [(Dialect::Nixl, 200), (Dialect::Store, 400)] {
        let body = r#"{"cached_tokens":170}"#;
        let decode = Worker::start(move |_| async move { whole(status, "application/json", body) }).await;
        let prefill = prefilling().await;
        let router = one_pair(dialect, &prefill, &decode).start().await;
        let answer = send(router.address, post("/v1/completions", BODY)).await;
        assert_eq!(answer.header("content-length"), Some("21"));
        assert_eq!(answer.text().await, body);
    }
}
