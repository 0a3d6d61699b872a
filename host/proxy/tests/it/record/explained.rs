//! Tests of requests kept for an explanation.

use std::sync::Arc;

use http::Request;
use prometheus_client::registry::Registry;
use proxy::record::{DecidedLine, RecordSpec, Recorder};
use routing::{Hold, Verdict};

use super::recorded_as;
use crate::client::{chat, send};
use crate::eventually;
use crate::policy::{Scripted, route};
use crate::router::router;
use crate::worker::{Worker, json};

fn named(id: &str, explain: bool) -> Request<bytes::Bytes> {
    let mut request = chat();
    request.headers_mut().insert("x-request-id", id.parse().unwrap());
    if explain {
        request
            .headers_mut()
            .insert("x-conductor-explain", "1".parse().unwrap());
    }
    request
}

#[tokio::test]
async fn of_a_request_that_was_held_many_times_the_placing_call_is_explained() {
    let recorder = Recorder::new(&mut Registry::default());
    let spec = RecordSpec {
        explain_on_demand: true,
        explained: 1,
        ..RecordSpec::nothing(Arc::clone(&recorder))
    };
    let worker = Worker::named("a").await;
    let patient = Scripted::seeing(&[], &["load.requests"], |input| {
        Ok(match input.request.attempt {
            ..40 => Verdict::Queue(Hold {
                order: 0.0,
                ask_again_ms: 1,
                waits_for: None,
            }),
            _ => route(0),
        })
    });
    let router = router()
        .worker("a", &worker.url())
        .policy(patient)
        .with(recorded_as(spec))
        .start()
        .await;
    send(router.address, named("held", true)).await.text().await;
    let is_over = || {
        recorder
            .explain("held")
            .is_some_and(|held| held.outcome.is_some())
    };
    eventually("it is over", is_over).await;
    let held = recorder.explain("held").unwrap();
    assert_eq!((held.calls.len(), held.left_out), (32, 9));
    let attempts = [&held.calls[0], held.calls.last().unwrap()].map(|call| call.decision.attempt);
    assert_eq!(attempts, [0, 40]);
    assert_eq!(held.calls[0].policy.version_id.as_deref(), Some("native"));
    let decided = &held.calls.last().unwrap().decision.decided;
    assert!(matches!(decided, Some(DecidedLine::Route { .. })), "{decided:?}");
}

#[tokio::test]
async fn the_latest_requests_with_the_explain_header_are_explained() {
    let recorder = Recorder::new(&mut Registry::default());
    let spec = RecordSpec {
        explain_on_demand: true,
        explained: 2,
        ..RecordSpec::nothing(Arc::clone(&recorder))
    };
    let worker =
        Worker::start(|_| async { json(200, r#"{"usage":{"completion_tokens":7,"cached_tokens":3}}"#) })
            .await;
    let router = router()
        .worker("a", &worker.url())
        .policy(Scripted::first(&[], &["load.requests"]))
        .with(recorded_as(spec))
        .start()
        .await;
    let four = "four".repeat(100);
    for (id, explain) in [("one", true), ("two", false), ("three", true), (&*four, true)] {
        send(router.address, named(id, explain)).await.text().await;
    }
    eventually("it is over", || {
        recorder.explain(&four).is_some_and(|four| four.outcome.is_some())
    })
    .await;
    assert!(recorder.explain("one").is_none(), "two newer ones are kept");
    assert!(recorder.explain("two").is_none(), "no client requested it");
    let explained = recorder.explain("three").unwrap();
    assert_eq!(
        (explained.seq, explained.calls.len(), explained.left_out),
        (3, 1, 0)
    );
    let call = &explained.calls[0];
    assert_eq!((&*call.policy.name, &*call.workers[0].name), ("scripted", "a"));
    assert!(call.decision.decided.is_some());
    let outcome = recorder.explain(&four).unwrap().outcome.unwrap();
    assert_eq!((outcome.output_tokens, outcome.cached_tokens), (Some(7), Some(3)));
}
