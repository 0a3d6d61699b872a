//! Tests of queued requests, until another ends or their time is up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use http::{Request, StatusCode};
use proxy::AdmissionSpec;
use routing::{Hold, Verdict, WaitsFor};

use crate::client::{chat, post, send};
use crate::clock::StoppedClock;
use crate::eventually;
use crate::policy::{Scripted, route};
use crate::router::{Router, router};
use crate::worker::{Worker, answered_by_hand, json, streaming};

/// Creates a hold with a re-evaluation on a release. Its other end is after 10 s, the most of a hold.
fn hold(order: f64, waits_for: Option<WaitsFor>) -> Verdict {
    Verdict::Queue(Hold {
        order,
        ask_again_ms: 60_000,
        waits_for,
    })
}

/// Creates a policy that holds every request while another is in flight.
pub(crate) fn one_at_a_time() -> Arc<Scripted> {
    Scripted::seeing(&[], &["load.requests"], |input| {
        Ok(if input.numbers[0] >= 1.0 {
            hold(0.0, None)
        } else {
            route(0)
        })
    })
}

/// Waits until `count` requests are held.
pub(crate) async fn held(router: &Router, count: f64) {
    eventually("they are held", || router.pool_metric("queue_length") == count).await;
}

#[tokio::test]
async fn a_held_request_goes_when_another_ends() {
    let (worker, mut pens) = streaming().await;
    let router = router()
        .worker("a", &worker.url())
        .policy(one_at_a_time())
        .start()
        .await;
    let first = send(router.address, chat()).await;
    let first_pen = pens.recv().await.unwrap();
    let second = send(router.address, chat());
    let release = async {
        held(&router, 1.0).await;
        assert!(router.pool_metric("queue_oldest_wait_seconds") > 0.0);
        assert_eq!(worker.received().len(), 1);
        drop(first_pen);
        first.text().await;
    };
    let (second, ()) = join(second, release).await;
    assert_eq!(second.status, StatusCode::OK);
    for gauge in ["queue_length", "queue_oldest_wait_seconds"] {
        let series = format!(r#"conductor_{gauge}{{pool="main"}}"#);
        assert_eq!(router.metric(&series), 0.0, "{series}");
    }
    assert_eq!(router.pool_metric("queue_wait_seconds_count"), 1.0);
}

/// Starts a router that holds requests while a prompt is being computed. Their time in the queue ends before a timed
/// re-evaluation.
async fn one_prompt_at_a_time(worker: &Worker) -> Router {
    let policy = Scripted::seeing(&[], &["load.prefill-tokens"], |input| {
        Ok(if input.numbers[0] > 0.0 {
            hold(0.0, None)
        } else {
            route(0)
        })
    });
    router()
        .worker("a", &worker.url())
        .policy(policy)
        .with(|builder| builder.queue_timeout = Duration::from_secs(5))
        .start()
        .await
}

#[tokio::test]
async fn a_request_that_waits_for_a_prompt_goes_when_its_first_token_comes() {
    let (worker, mut pens) = streaming().await;
    let router = one_prompt_at_a_time(&worker).await;
    let streamed = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let mut first = send(router.address, post("/v1/chat/completions", streamed)).await;
    let first_pen = pens.recv().await.unwrap();
    let second = send(router.address, chat());
    let token = async {
        held(&router, 1.0).await;
        first_pen.send(Ok("data: {}\n\n".into())).await.unwrap();
        first.piece().await.unwrap().unwrap();
    };
    let (second, ()) = join(second, token).await;
    assert_eq!(second.status, StatusCode::OK);
    assert_eq!(router.in_flight("a"), 2, "the first is still answered");
}

#[tokio::test]
async fn a_request_that_waits_for_a_prompt_goes_when_it_should_be_computed_and_that_cannot_be_seen() {
    let (worker, mut answers) = answered_by_hand().await;
    let router = one_prompt_at_a_time(&worker).await;
    let address = router.address;
    // 40,000 bytes are about 10,000 tokens, estimated at a second. The second request has the same length, so that its
    // prompt is still being computed when it is checked.
    let long = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(40_000));
    let clock = StoppedClock::stop();
    let first = send(address, post("/v1/completions", long.clone()));
    let rest = async {
        let first_answer = answers.recv().await.unwrap();
        let second = send(address, post("/v1/completions", long));
        let goes = async {
            held(&router, 1.0).await;
            assert!(answers.try_recv().is_err());
            clock.pass(Duration::from_millis(1_500)).await;
            let second_answer = answers.recv().await.unwrap();
            assert_eq!(router.in_flight("a"), 2, "the first is still answered");
            assert_eq!(router.worker("a").load().read().decoding, 1);
            for answer in [first_answer, second_answer] {
                answer.send(json(200, "{}")).unwrap();
            }
        };
        join(second, goes).await.0
    };
    let (first, second) = join(first, rest).await;
    assert_eq!((first.status, second.status), (StatusCode::OK, StatusCode::OK));
    let load = router.worker("a").load();
    assert_eq!((load.read().decoding, load.read().prefill_tokens), (0, 0));
    assert!(load.read().ttft_ewma_ms.is_nan(), "nothing was learnt of it");
}

#[tokio::test]
async fn a_release_that_one_request_cannot_use_serves_the_next() {
    let (worker, mut pens) = streaming().await;
    // The second request is always held again; the third waits behind it for the first to end.
    let policy = Scripted::seeing(&[], &["load.requests"], |input| {
        let seq = input.request.seq;
        Ok(if seq == 2 || input.numbers[0] >= 1.0 {
            hold(seq as f64, None)
        } else {
            route(0)
        })
    });
    let router = router().worker("a", &worker.url()).policy(policy).start().await;
    let first = send(router.address, chat()).await;
    let first_pen = pens.recv().await.unwrap();
    let mut others = tokio::task::JoinSet::new();
    let address = router.address;
    others.spawn(async move { send(address, chat()).await.status });
    held(&router, 1.0).await;
    let third = send(router.address, chat());
    let release = async {
        held(&router, 2.0).await;
        drop(first_pen);
        first.text().await;
    };
    let (third, ()) = join(third, release).await;
    assert_eq!(third.status, StatusCode::OK);
    others.shutdown().await;
    held(&router, 0.0).await;
    assert_eq!(
        router.pool_metric("queue_wait_seconds_count"),
        2.0,
        "the one that left without an answer has waited, too"
    );
}

#[tokio::test]
async fn a_policy_sees_what_waits_for_each_worker_while_it_waits() {
    let (worker, mut pens) = streaming().await;
    let (other, mut other_pens) = streaming().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seeing = Arc::clone(&seen);
    // The second and third wait for the first worker; the last goes to the other and reads the queue.
    let policy = Scripted::seeing(&[], &["load.requests"], move |input| {
        let seq = input.request.seq;
        let waits = |row, work| hold(seq as f64, Some(WaitsFor { row, work }));
        Ok(match seq {
            2 if input.numbers[0] > 0.0 => waits(0, 30),
            3 if input.numbers[0] > 0.0 => waits(0, 50),
            4.. => {
                seeing.lock().unwrap().push(input.queries.ahead(&[30, 99]));
                seeing.lock().unwrap().push(input.queries.ahead(&[99]));
                route(1)
            }
            _ => route(0),
        })
    });
    let router = router()
        .worker("a", &worker.url())
        .worker("b", &other.url())
        .policy(policy)
        .start()
        .await;
    let _first = send(router.address, chat()).await;
    let _pen = pens.recv().await.unwrap();
    let address = router.address;
    let mut waiting = tokio::task::JoinSet::new();
    for count in [1.0, 2.0] {
        waiting.spawn(async move { send(address, chat()).await.status });
        held(&router, count).await;
    }
    let _answer = send(address, chat()).await;
    drop(other_pens.recv().await.unwrap());
    waiting.shutdown().await;
    held(&router, 0.0).await;
    let _answer = send(address, chat()).await;
    drop(other_pens.recv().await.unwrap());
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(
        seen,
        [[2, 30, 0, 0], [2, 80, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
        "those that left do not wait"
    );
}

/// Creates a request of a class and a tenant.
fn chat_of(class: &str, tenant: &str) -> Request<Bytes> {
    let mut request = chat();
    for (name, value) in [("x-priority", class), ("x-tenant", tenant)] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn a_policy_sees_the_work_that_goes_before_the_request_by_class_and_tenant() {
    let (worker, mut pens) = streaming().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seeing = Arc::clone(&seen);
    let policy = Scripted::seeing(&[], &["load.requests"], move |input| {
        let seq = input.request.seq;
        let waits_for = Some(WaitsFor { row: 0, work: 30 });
        Ok(match seq {
            2 | 3 if input.numbers[0] > 0.0 => hold(seq as f64, waits_for),
            4.. => {
                seeing.lock().unwrap().push(input.queries.ahead(&[99]));
                route(0)
            }
            _ => route(0),
        })
    });
    let router = router()
        .worker("a", &worker.url())
        .policy(policy)
        .with(|builder| {
            builder.admission = Some(AdmissionSpec {
                priority_header: Some("x-priority".to_owned()),
                tenant_header: Some("x-tenant".to_owned()),
                ..AdmissionSpec::default()
            });
        })
        .start()
        .await;
    let address = router.address;
    let _first = send(address, chat()).await;
    let _pen = pens.recv().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for count in [1.0, 2.0] {
        waiting.spawn(async move { send(address, chat_of("-5", "heavy")).await.status });
        held(&router, count).await;
    }
    // The others stay in flight: the end of one would have the held requests decided again meanwhile.
    let mut others = Vec::new();
    for (class, tenant) in [("0", "other"), ("-5", "light"), ("-5", "heavy"), ("-6", "light")] {
        let answer = send(address, chat_of(class, tenant)).await;
        others.push((answer, pens.recv().await.unwrap()));
    }
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen, [[0, 0], [2, 30], [2, 60], [2, 60]]);
    waiting.shutdown().await;
}

#[tokio::test]
async fn no_request_goes_past_a_full_queue() {
    let (worker, mut pens) = streaming().await;
    let policy = Scripted::seeing(&["request.hold-left-ms"], &["load.requests"], |input| {
        let may_wait = !input.numbers[0].is_nan();
        Ok(if may_wait && input.numbers[1] >= 1.0 {
            hold(0.0, None)
        } else {
            route(0)
        })
    });
    let router = router()
        .worker("a", &worker.url())
        .policy(policy)
        .with(|builder| builder.queue_limit = 1)
        .start()
        .await;
    let _first = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    let address = router.address;
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(async move { send(address, chat()).await.status });
    held(&router, 1.0).await;
    let refused = send(address, chat()).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.text().await.contains("queue_full"));
    drop(pen);
    let held = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(held, StatusCode::OK, "the one that waited is next");
}

#[tokio::test]
async fn a_policy_sees_that_an_answer_must_begin_before_the_queue_gives_it_up() {
    let worker = Worker::start(|_| async { json(200, "{}") }).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seeing = Arc::clone(&seen);
    let policy = Scripted::seeing(&["request.hold-left-ms"], &[], move |input| {
        seeing.lock().unwrap().push(input.numbers[0]);
        Ok(route(0))
    });
    let router = router()
        .worker("a", &worker.url())
        .policy(policy)
        .with(|builder| {
            builder.queue_timeout = Duration::from_secs(30);
            builder.objectives.start_timeout = Some(Duration::from_secs(20));
        })
        .start()
        .await;
    assert_eq!(send(router.address, chat()).await.status, StatusCode::OK);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(
        matches!(*seen, [left_ms] if left_ms > 0.0 && left_ms <= 20_000.0),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_full_queue_and_a_long_wait_are_distinguished() {
    for (limit, status, code) in [(0, 429, "queue_full"), (1, 503, "queue_timeout")] {
        let (worker, mut pens) = streaming().await;
        let router = router()
            .worker("a", &worker.url())
            .policy(one_at_a_time())
            .with(|builder| {
                builder.queue_limit = limit;
                builder.queue_timeout = Duration::from_millis(20);
            })
            .start()
            .await;
        let _first = send(router.address, chat()).await;
        let _pen = pens.recv().await.unwrap();
        let refused = send(router.address, chat()).await;
        assert_eq!(refused.status, status);
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(refused.text().await.contains(code));
    }
}
