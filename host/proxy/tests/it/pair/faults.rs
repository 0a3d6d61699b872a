//! Tests of failures of sequential legs: the next worker tried, and the response to the client.

use std::time::Duration;

use http::StatusCode;
use routing::Dialect;

use crate::client::{Answer, post, send};
use crate::clock::StoppedClock;
use crate::eventually;
use crate::pair::{BODY, PARAMS, one_pair, prefilling, request, troubled};
use crate::router::router;
use crate::worker::{BrokenOff, Leaving, Received, Worker, is_taken, json, whole, writing, written};

const SEQUENTIAL: [Dialect; 2] = [Dialect::Nixl, Dialect::Store];

#[tokio::test]
async fn a_prefill_refusal_is_the_clients_answer_and_decode_is_never_called() {
    for status in [400, 401, 404, 422] {
        let prefill = Worker::start(move |_| async move { whole(status, "text/x-refusal", "no") }).await;
        let decode = Worker::named("d").await;
        let router = one_pair(Dialect::Nixl, &prefill, &decode)
            .prefill("q", &prefill.url())
            .start()
            .await;
        let answer = send(router.address, request()).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("content-type"), Some("text/x-refusal"));
        assert_eq!(answer.header("x-conductor-worker"), Some("p"));
        assert!(answer.header("x-request-id").is_some());
        assert_eq!(answer.text().await, "no");
        assert_eq!(prefill.received().len(), 1, "another would answer the same");
        assert!(decode.received().is_empty());
        assert_eq!(router.outcomes("complete"), 1.0);
    }
}

#[tokio::test]
async fn behind_comments_a_prefill_refusal_is_an_event_with_the_workers_message() {
    let prefill = Worker::start(|_| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        json(400, r#"{"error":{"message":"the prompt is too long"}}"#)
    })
    .await;
    let decode = Worker::named("d").await;
    let router = one_pair(Dialect::Nixl, &prefill, &decode)
        .with(|with| with.keep_alive = Some(Duration::from_millis(1)))
        .start()
        .await;
    let streamed = post(
        "/v1/completions",
        r#"{"model":"m","prompt":"hello","stream":true}"#,
    );
    let text = send(router.address, streamed).await.text().await;
    assert!(
        text.contains(r#"{"message":"the prompt is too long","type":"invalid_request_error","#),
        "{text}"
    );
}

#[tokio::test]
async fn a_prefill_worker_in_trouble_is_passed_over() {
    for status in [429, 500, 503] {
        let worker = troubled(status).await;
        check_passed_over(&worker.url()).await;
    }
    check_gone_is_passed_over().await;
    check_passed_over(&Worker::hanging_up().await.url()).await;
    check_passed_over(&Worker::babbling().await.url()).await;
    // A success status with an invalid body.
    check_passed_over(&Worker::named("garbage").await.url()).await;
}

/// Sends a request whose prefill worker answers with a head, these bytes, and then the end of its connection, or
/// nothing more. Returns the status, and whether the worker is ejected.
async fn after_the_head(bytes: &'static str, breaks: bool) -> (StatusCode, bool) {
    let (first, mut pens) = writing("application/json").await;
    let (second, decode) = (prefilling().await, Worker::named("d").await);
    let short = Duration::from_millis(100);
    let router = one_pair(Dialect::Nixl, &first, &decode)
        .prefill("q", &second.url())
        .with_pd(|pd| pd.prefill_timeout = if breaks { pd.prefill_timeout } else { short })
        .start()
        .await;
    let clock = StoppedClock::stop();
    let answering = async {
        // The worker has written the head with that.
        let pen = pens.recv().await.unwrap();
        if !bytes.is_empty() {
            pen.send(Ok(bytes.into())).await.unwrap();
            eventually("it is written", || is_taken(&pen)).await;
        }
        clock.settle().await;
        if breaks {
            pen.send(Err(BrokenOff)).await.unwrap();
        }
        clock.go_on();
        pen
    };
    let (answer, _pen) = futures_util::join!(send(router.address, request()), answering);
    let ejected = router.metric(r#"conductor_worker_ejected{worker="p"}"#);
    (answer.status, ejected == 1.0)
}

#[tokio::test]
async fn a_prefill_worker_is_ejected_after_a_head_without_a_byte() {
    for (bytes, breaks, expected) in [
        ("", true, (StatusCode::OK, true)),
        ("", false, (StatusCode::GATEWAY_TIMEOUT, true)),
        ("{", true, (StatusCode::OK, false)),
        ("{", false, (StatusCode::GATEWAY_TIMEOUT, false)),
    ] {
        assert_eq!(
            after_the_head(bytes, breaks).await,
            expected,
            "{bytes:?} {breaks}"
        );
    }
}

async fn check_passed_over(first: &str) {
    check_second_is_taken(first, std::future::ready(())).await;
}

async fn check_gone_is_passed_over() {
    let first = Leaving::start().await;
    let url = first.url.clone();
    check_second_is_taken(&url, first.leave()).await;
}

/// Checks that the second worker takes over. `leave` runs once the router has started.
async fn check_second_is_taken(first: &str, leave: impl Future<Output = ()>) {
    let (second, decode) = (prefilling().await, Worker::named("d").await);
    let router = router()
        .pd(Dialect::Nixl)
        .prefill("p", first)
        .prefill("q", &second.url())
        .decode("d", &decode.url())
        .start()
        .await;
    leave.await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.status, StatusCode::OK, "{first}");
    assert_eq!(answer.header("x-conductor-prefill-worker"), Some("q"));
    assert_eq!((second.received().len(), decode.received().len()), (1, 1));
    answer.text().await;
    assert_eq!(
        [
            router.in_flight("p"),
            router.in_flight("q"),
            router.in_flight("d")
        ],
        [0; 3]
    );
}

#[tokio::test]
async fn when_no_worker_does_better_the_last_response_reaches_the_client() {
    for status in [429, 500, 503] {
        let (first, second) = (troubled(500).await, troubled(status).await);
        let decode = Worker::named("d").await;
        let router = one_pair(Dialect::Nixl, &first, &decode)
            .prefill("q", &second.url())
            .with_pd(|pd| pd.alone = false)
            .start()
            .await;
        check_words(send(router.address, request()).await, status, "q").await;
        assert!(decode.received().is_empty());
    }
}

#[tokio::test]
async fn the_same_holds_for_decode_workers() {
    for dialect in SEQUENTIAL {
        let (prefill, decode) = (prefilling().await, troubled(503).await);
        let router = one_pair(dialect, &prefill, &decode).start().await;
        check_words(send(router.address, request()).await, 503, "d").await;
        assert_eq!((router.in_flight("p"), router.in_flight("d")), (0, 0));
    }
}

async fn check_words(answer: Answer, status: u16, worker: &str) {
    assert_eq!(answer.status, status);
    assert_eq!(answer.header("retry-after"), Some("7"));
    assert_eq!(answer.header("content-type"), Some("text/x-trouble"));
    assert_eq!(answer.header("x-conductor-worker"), Some(worker));
    assert_eq!(answer.text().await, format!("trouble {status}"));
}

#[tokio::test]
async fn without_prefill_workers_decode_does_all_where_it_may() {
    for alone in [true, false] {
        let (prefill, decode) = (Leaving::start().await, Worker::named("d").await);
        let router = router()
            .pd(Dialect::Nixl)
            .with_pd(|pd| pd.alone = alone)
            .prefill("p", &prefill.url)
            .decode("d", &decode.url())
            .start()
            .await;
        prefill.leave().await;
        // The second request finds the prefill worker ejected.
        for _ in 0..2 {
            let answer = send(router.address, request()).await;
            if alone {
                assert_eq!(answer.header("x-conductor-worker"), Some("d"));
                assert_eq!(answer.header("x-conductor-prefill-worker"), None);
            } else {
                assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
                assert!(answer.text().await.contains("no_worker_reachable"));
            }
        }
        let bodies: Vec<_> = decode
            .received()
            .into_iter()
            .map(|received| received.body)
            .collect();
        assert_eq!(bodies, [BODY; 2][..if alone { 2 } else { 0 }]);
        let attempts = router.metric(r#"conductor_worker_attempts_total{worker="p"}"#);
        assert_eq!(
            attempts,
            if alone { 1.0 } else { 2.0 },
            "an ejected one is tried where there is no other"
        );
    }
}

#[tokio::test]
async fn a_decode_worker_that_cannot_have_begun_gives_the_same_prompt_to_another() {
    for dialect in SEQUENTIAL {
        for status in [429, 503] {
            let worker = troubled(status).await;
            check_handed_again(dialect, &worker.url(), std::future::ready(())).await;
        }
        let first = Leaving::start().await;
        let url = first.url.clone();
        check_handed_again(dialect, &url, first.leave()).await;
    }
}

/// Checks that the prompt is handed over again. `leave` runs once the router has started.
async fn check_handed_again(dialect: Dialect, first: &str, leave: impl Future<Output = ()>) {
    let (prefill, second) = (prefilling().await, Worker::named("e").await);
    let router = router()
        .pd(dialect)
        .prefill("p", &prefill.url())
        .decode("d", first)
        .decode("e", &second.url())
        .start()
        .await;
    leave.await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.header("x-conductor-worker"), Some("e"), "{dialect:?}");
    assert_eq!(answer.header("x-conductor-prefill-worker"), Some("p"));
    assert_eq!(prefill.received().len(), 1, "the prompt is computed");
    assert_eq!(is_handed(&second.received()[0]), dialect == Dialect::Nixl);
    assert_eq!(
        router.metric(r#"conductor_pd_placements_total{pool="main",shape="decode-again"}"#),
        1.0
    );
}

fn is_handed(decode: &Received) -> bool {
    String::from_utf8_lossy(&decode.body).contains(PARAMS)
}

#[tokio::test]
async fn a_decode_worker_that_hangs_up_costs_nixl_a_new_prompt_and_a_store_nothing() {
    for (dialect, prompts) in [(Dialect::Nixl, 2), (Dialect::Store, 1)] {
        let (prefill, second) = (prefilling().await, Worker::named("e").await);
        let first = Worker::hanging_up().await;
        let router = one_pair(dialect, &prefill, &first)
            .decode("e", &second.url())
            .start()
            .await;
        let answer = send(router.address, request()).await;
        assert_eq!(answer.header("x-conductor-worker"), Some("e"));
        assert_eq!(answer.text().await, "e");
        assert_eq!(prefill.received().len(), prompts, "{dialect:?}");
    }
}

#[tokio::test]
async fn a_decode_worker_in_trouble_may_lack_the_prompt_so_its_prefill_worker_is_not_called_again() {
    let (first, second) = (prefilling().await, prefilling().await);
    let (decode, other) = (troubled(500).await, Worker::named("e").await);
    let router = one_pair(Dialect::Nixl, &first, &decode)
        .prefill("q", &second.url())
        .decode("e", &other.url())
        .start()
        .await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.header("x-conductor-prefill-worker"), Some("q"));
    assert_eq!(answer.text().await, "e");
    assert_eq!((first.received().len(), second.received().len()), (1, 1));
}

#[tokio::test]
async fn an_error_as_a_streams_first_event_is_a_failure_like_any_other() {
    let decode = Worker::start(|_| async {
        let event =
            "data: {\"error\":{\"message\":\"no\",\"type\":\"InternalServerError\",\"code\":500}}\n\n";
        let (pen, response) = written("text/event-stream");
        pen.send(Ok(event.into())).await.unwrap();
        response
    })
    .await;
    let (prefill, other) = (prefilling().await, Worker::named("e").await);
    let router = one_pair(Dialect::Nixl, &prefill, &decode)
        .decode("e", &other.url())
        .start()
        .await;
    assert_eq!(send(router.address, request()).await.text().await, "e");
    assert_eq!(decode.received().len(), 1);
}

#[tokio::test]
async fn a_prompt_that_no_worker_takes_over_begins_again_on_a_mixed_worker() {
    let (prefill, mixed) = (prefilling().await, Worker::named("m").await);
    let decode = troubled(503).await;
    let router = one_pair(Dialect::Nixl, &prefill, &decode)
        .worker("m", &mixed.url())
        .start()
        .await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.header("x-conductor-worker"), Some("m"));
    assert_eq!(mixed.received()[0].body, BODY);
}

#[tokio::test]
async fn all_tries_together_are_bounded() {
    let prefill = prefilling().await;
    let mut builder = router()
        .pd(Dialect::Nixl)
        .with(|builder| builder.limits.attempts = 2)
        .prefill("p", &prefill.url());
    let decodes = [troubled(503).await, troubled(503).await, troubled(503).await];
    for (name, decode) in ["d", "e", "f"].into_iter().zip(&decodes) {
        builder = builder.decode(name, &decode.url());
    }
    let router = builder.start().await;
    assert_eq!(send(router.address, request()).await.status, 503);
    let queried: Vec<_> = decodes.iter().map(|decode| decode.received().len()).collect();
    assert_eq!(queried, [1, 1, 0]);
    eventually("the leases are given back", || router.in_flight("p") == 0).await;
}
