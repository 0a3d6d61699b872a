//! Tests of the detection of an unnamed dialect: by the workers' pages, and by a trial request, which is not part of a
//! client's request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use http::StatusCode;
use proxy::Authorization;
use routing::{Dialect, Role, WorkerSpec};

use crate::client::send;
use crate::clock::StoppedClock;
use crate::eventually;
use crate::pair::{BODY, one_pair, parsed, prefill_answer, prefilled, request};
use crate::policy::{Scripted, route};
use crate::router::{Builder, router, spec};
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

/// Starts an SGLang worker whose `/server_info` names this bootstrap port.
async fn sglang(port: u16) -> Worker {
    Worker::start(move |request: Received| async move {
        match request.uri.path() {
            "/server_info" => json(200, server_info(port)),
            "/v1/completions" => json(200, "s"),
            _ => json(404, "{}"),
        }
    })
    .await
}

fn server_info(port: u16) -> String {
    format!(r#"{{"disaggregation_mode":"prefill","disaggregation_bootstrap_port":{port}}}"#)
}

/// Returns a prefill worker whose bootstrap port is not configured.
fn at_usual_port(name: &str, worker: &Worker) -> WorkerSpec {
    let mut spec = spec(Role::Prefill, name, &worker.url());
    spec.bootstrap = Some("http://127.0.0.1:8998".into());
    spec
}

/// Returns a pool whose dialect is detected, and whose prefill legs go to each worker in turn.
fn detected(prefills: &[(String, Worker)], decode: &Worker) -> Builder {
    let turn = AtomicU32::new(0);
    let in_turn = Scripted::new(move |input| {
        let turn = turn.fetch_add(1, Ordering::SeqCst);
        Ok(route(turn % u32::try_from(input.ids.len()).unwrap()))
    });
    let mut router = router().pd(Dialect::Sglang).with_pd(|pd| pd.dialect = None);
    router.prefill_policy = Some(in_turn);
    for (name, worker) in prefills {
        router = router.specified(at_usual_port(name, worker));
    }
    router.decode("d", &decode.url())
}

/// Returns the bootstrap ports of the legs that a worker received.
fn ports(worker: &Worker) -> Vec<u64> {
    legs(worker)
        .iter()
        .map(|leg| parsed(leg)["bootstrap_port"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn the_legs_of_every_sglang_worker_have_its_own_port_however_many_there_are() {
    let mut prefills = Vec::new();
    for at in 0..20 {
        prefills.push((format!("p{at}"), sglang(8_000 + at).await));
    }
    let decode = Worker::named("d").await;
    let router = detected(&prefills, &decode).start().await;
    for _ in &prefills {
        assert_eq!(send(router.address, request()).await.status, StatusCode::OK);
    }
    for (at, (name, worker)) in (8_000..).zip(&prefills) {
        assert_eq!(ports(worker), [at], "{name}");
    }
}

#[tokio::test]
async fn a_worker_that_joins_later_is_queried_before_its_first_leg() {
    let first = [("p".to_owned(), sglang(8_997).await)];
    let decode = Worker::named("d").await;
    let mut router = detected(&first, &decode).start().await;
    send(router.address, request()).await.text().await;
    let second = [("q".to_owned(), sglang(8_996).await)];
    router.change(detected(&second, &decode));
    send(router.address, request()).await.text().await;
    assert_eq!(
        (ports(&first[0].1), ports(&second[0].1)),
        (vec![8_997], vec![8_996])
    );
}

#[tokio::test]
async fn a_worker_that_does_not_name_its_port_gets_no_leg_until_it_does() {
    let is_up = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_up);
    let starting = Worker::start(move |request: Received| {
        let is_up = asked.load(Ordering::SeqCst);
        async move {
            match request.uri.path() {
                "/server_info" if is_up => json(200, server_info(8_996)),
                "/server_info" => json(503, "{}"),
                "/v1/completions" => json(200, "s"),
                _ => json(404, "{}"),
            }
        }
    })
    .await;
    let prefills = [("p".to_owned(), sglang(8_997).await), ("q".to_owned(), starting)];
    let decode = Worker::named("d").await;
    let router = detected(&prefills, &decode).start().await;
    for _ in 0..4 {
        assert_eq!(send(router.address, request()).await.status, StatusCode::OK);
    }
    assert_eq!(ports(&prefills[0].1), [8_997; 4]);
    let health = || router.snapshot().report()[0].workers[1].health.as_str();
    assert_eq!(health(), "engine-unknown");
    is_up.store(true, Ordering::SeqCst);
    eventually("it has named its port", || health() == "ok").await;
    for _ in 0..2 {
        send(router.address, request()).await.text().await;
    }
    assert_eq!(ports(&prefills[1].1), [8_996]);
}

#[tokio::test]
async fn pages_are_queried_with_the_pools_key_and_a_missing_key_is_named() {
    let with_key = || {
        Worker::start(|request: Received| async move {
            let has_key = request.has_key("k");
            match request.uri.path() {
                _ if !has_key => json(401, "{}"),
                "/server_info" => json(200, server_info(8_997)),
                _ => json(200, "s"),
            }
        })
    };
    let decode = Worker::named("d").await;
    let prefills = [("p".to_owned(), with_key().await)];
    let router = detected(&prefills, &decode)
        .with(|with| with.authorization = Authorization::bearer("k").unwrap())
        .start()
        .await;
    send(router.address, request()).await.text().await;
    assert_eq!(
        (dialect(&router), ports(&prefills[0].1)),
        (Some(Dialect::Sglang), vec![8_997])
    );
    let router = detected(&prefills, &decode).start().await;
    let reason = || {
        let report = router.snapshot().report().swap_remove(0).dialect_report.unwrap();
        report.reason.unwrap_or_default()
    };
    eventually("the first round has ended", || !reason().is_empty()).await;
    assert!(
        reason().contains("1 of 1 prefill workers answered /server_info with 401 Unauthorized: set the pool's `authorization`"),
        "{}",
        reason()
    );
}

#[tokio::test]
async fn a_trial_whose_leg_never_ends_is_served_by_the_decode_worker() {
    let prefill = Worker::start(|request: Received| async move {
        match request.uri.path() {
            "/v1/completions" => std::future::pending().await,
            _ => json(404, "{}"),
        }
    })
    .await;
    let decode = Worker::named("d").await;
    let router = one_pair(Dialect::Nixl, &prefill, &decode)
        .with_pd(|pd| {
            pd.dialect = None;
            pd.prefill_timeout = Duration::from_millis(50);
        })
        .start()
        .await;
    let state = || {
        router.snapshot().report()[0]
            .dialect_report
            .clone()
            .unwrap()
            .state
    };
    eventually("the pages were queried", || state() == "unknown").await;
    let clock = StoppedClock::stop();
    let tried = async {
        eventually("the prefill worker has the trial", || legs(&prefill).len() == 1).await;
        clock.go_on();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), tried);
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.text().await, "d");
    assert_eq!(legs(&prefill).len(), 1, "one trial");
    assert_eq!(decode.received()[0].body, BODY, "the client's own body");
}
