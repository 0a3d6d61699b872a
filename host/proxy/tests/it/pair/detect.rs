//! Tests of the detection of an unnamed dialect by a trial request, which is not part of a client's request.

use http::StatusCode;
use routing::Dialect;

use crate::client::send;
use crate::pair::{BODY, one_pair, parsed, prefill_answer, prefilled, request};
use crate::worker::{Received, Worker, json};

/// Starts a prefill worker without pages of its own.
async fn without_pages(
    answer: impl Fn() -> http::Response<crate::worker::WorkerBody> + Clone + Send + Sync + 'static,
) -> Worker {
    Worker::start(move |request: Received| {
        let answer = answer.clone();
        async move {
            match request.uri.path() {
                "/v1/completions" => answer(),
                _ => json(404, "{}"),
            }
        }
    })
    .await
}

/// Returns the legs that a worker received.
fn legs(worker: &Worker) -> Vec<Received> {
    let received = worker.received().into_iter();
    received
        .filter(|request| request.uri.path() == "/v1/completions")
        .collect()
}

fn dialect(router: &crate::router::Router) -> Option<Dialect> {
    router.snapshot().report()[0].dialect
}

#[tokio::test]
async fn parameters_in_an_answer_are_nixls() {
    let (prefill, decode) = (without_pages(prefilled).await, Worker::named("d").await);
    let router = one_pair(Dialect::Nixl, &prefill, &decode)
        .with_pd(|pd| pd.dialect = None)
        .start()
        .await;
    assert_eq!(dialect(&router), None);
    for _ in 0..2 {
        let answer = send(router.address, request()).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.header("x-conductor-prefill-worker"), Some("p"));
        assert_eq!(dialect(&router), Some(Dialect::Nixl));
    }
    assert_eq!(legs(&prefill).len(), 2);
    let report = router.snapshot().report().swap_remove(0).dialect_report.unwrap();
    assert_eq!(report.state, "detected");
}

#[tokio::test]
async fn a_trial_that_shows_nothing_or_is_refused_is_served_by_the_decode_worker_once() {
    let nothing = without_pages(|| prefill_answer("length", "null")).await;
    let refusing = without_pages(|| json(400, r#"{"error":"bootstrap_room"}"#)).await;
    for prefill in [nothing, refusing] {
        let decode = Worker::named("d").await;
        let router = one_pair(Dialect::Nixl, &prefill, &decode)
            .with_pd(|pd| pd.dialect = None)
            .start()
            .await;
        for _ in 0..3 {
            let answer = send(router.address, request()).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert_eq!(answer.text().await, "d");
        }
        assert_eq!(dialect(&router), None);
        let legs = legs(&prefill);
        assert_eq!(legs.len(), 1, "one trial");
        assert_eq!(parsed(&legs[0])["max_tokens"], 1);
        let whole = decode.received();
        assert!(
            whole.iter().all(|request| request.body == BODY),
            "the client's own body"
        );
        let report = router.snapshot().report().swap_remove(0).dialect_report.unwrap();
        assert_eq!(report.state, "unknown");
    }
}
