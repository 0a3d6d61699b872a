//! Tests of HTTP/2 workers: connections shared by requests, and the effect of one stream's end on the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use proxy::{ConnectionsSpec, WorkerTls, WorkerTlsParts};
use routing::Dialect;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::client::{Answer, chat, send};
use crate::eventually;
use crate::pair::{one_pair, prefilled, request};
use crate::router::{Router, router};
use crate::worker::{HangUp, Pen, Worker, json, written};

fn http2() -> ConnectionsSpec {
    ConnectionsSpec {
        http2: true,
        ..ConnectionsSpec::default()
    }
}

async fn over(worker: &Worker) -> Router {
    let router = router().worker("a", &worker.url());
    router.with(|with| with.connections = http2()).start().await
}

/// Starts a worker whose responses are written by the test.
async fn streaming(tls: Option<TlsAcceptor>) -> (Worker, mpsc::Receiver<Pen>) {
    let (pens, taken) = mpsc::channel(64);
    let script = move |_| {
        let pens = pens.clone();
        async move {
            let (pen, response) = written("text/event-stream");
            pens.send(pen).await.unwrap();
            response
        }
    };
    (Worker::start_http2(tls, script).await, taken)
}

/// Begins `count` responses, one after the other.
async fn begin(router: &Router, pens: &mut mpsc::Receiver<Pen>, count: usize) -> Vec<(Answer, Pen)> {
    let mut begun = Vec::new();
    for _ in 0..count {
        let answer = send(router.address, chat()).await;
        assert_eq!(answer.status, StatusCode::OK);
        begun.push((answer, pens.recv().await.unwrap()));
    }
    begun
}

#[tokio::test]
async fn requests_share_a_connection_with_their_own_targets() {
    let (worker, mut pens) = streaming(None).await;
    let router = over(&worker).await;
    let begun = begin(&router, &mut pens, 20).await;
    assert_eq!(worker.connections(), 1);
    for (answer, pen) in begun {
        pen.send(Ok("data: {}\n\n".into())).await.unwrap();
        drop(pen);
        assert_eq!(answer.text().await, "data: {}\n\n");
    }
    let received = worker.received();
    let inference = received.iter().find(|request| request.method == "POST").unwrap();
    assert_eq!(inference.uri.path(), "/v1/chat/completions");
    assert_eq!(
        inference.uri.authority().unwrap().as_str(),
        worker.address.to_string()
    );
    assert!(!inference.headers.contains_key("host"));
}

#[tokio::test]
async fn beyond_a_hundred_requests_another_connection_is_opened() {
    let (worker, mut pens) = streaming(None).await;
    let router = over(&worker).await;
    let begun = begin(&router, &mut pens, 101).await;
    assert_eq!(worker.connections(), 2);
    drop(begun);
    eventually("all are over", || worker.busy() == 0).await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_own_stream_and_no_other() {
    let (worker, mut pens) = streaming(None).await;
    let router = over(&worker).await;
    let mut begun = begin(&router, &mut pens, 2).await;
    let (left, _pen) = begun.remove(0);
    drop(left);
    eventually("the worker knows", || worker.busy() == 1).await;
    let (stays, pen) = begun.remove(0);
    pen.send(Ok("data: [DONE]\n\n".into())).await.unwrap();
    drop(pen);
    assert_eq!(stays.text().await, "data: [DONE]\n\n");
    assert_eq!(worker.connections(), 1);
}

#[tokio::test]
async fn a_worker_that_does_not_speak_http2_is_a_bad_answer_and_not_a_hang() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url());
    let router = router
        .with(|with| with.connections = http2())
        .start_at_once()
        .await;
    let answer = send(router.address, chat()).await;
    assert!(answer.status.is_server_error(), "{}", answer.status);
}

/// Creates a TLS acceptor for `worker.test` with these protocols, and a client configuration that trusts it.
fn tls(protocols: &[&[u8]]) -> (TlsAcceptor, Arc<WorkerTls>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["worker.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let trust = WorkerTls::new(WorkerTlsParts {
        authorities: Some(cert.pem().as_bytes()),
        identity: None,
        server_name: Some("worker.test"),
    });
    (TlsAcceptor::from(Arc::new(config)), Arc::new(trust.unwrap()))
}

#[tokio::test]
async fn a_worker_behind_tls_that_chooses_http2_is_spoken_to_so() {
    let (acceptor, trust) = tls(&[b"h2", b"http/1.1"]);
    let (worker, mut pens) = streaming(Some(acceptor)).await;
    let router = router()
        .worker("a", &format!("https://{}", worker.address))
        .with(|with| {
            with.connections = ConnectionsSpec {
                tls: Some(trust),
                ..http2()
            };
        });
    let router = router.start().await;
    let begun = begin(&router, &mut pens, 3).await;
    for (answer, pen) in begun {
        drop(pen);
        assert_eq!(answer.text().await, "");
    }
    let received = worker.received();
    let inference = received.iter().find(|request| request.method == "POST").unwrap();
    assert_eq!(inference.uri.scheme_str(), Some("https"));
}

#[tokio::test]
async fn http2_is_spoken_only_where_it_is_configured() {
    let worker = Worker::start_http2(None, |_| async { json(200, "{}") }).await;
    let router = router().worker("a", &worker.url()).start_at_once().await;
    let answer = send(router.address, chat()).await;
    assert!(answer.status.is_server_error(), "{}", answer.status);
    let spoken = over(&worker).await;
    let answer = send(spoken.address, chat()).await;
    assert_eq!(answer.status, StatusCode::OK);
}

/// Starts a prefill worker that resets the stream of each request but its first.
async fn resetting() -> Worker {
    let is_first = AtomicBool::new(true);
    Worker::start_http2(None, move |request| {
        let is_reset = request.method == "POST" && !is_first.swap(false, Ordering::SeqCst);
        async move {
            let mut response = prefilled();
            if is_reset {
                response.extensions_mut().insert(HangUp);
            }
            response
        }
    })
    .await
}

#[tokio::test]
async fn a_prefill_worker_that_resets_its_streams_is_ejected() {
    let first = resetting().await;
    let second = Worker::start_http2(None, |_| async { prefilled() }).await;
    let decode = Worker::start_http2(None, |_| async { json(200, "d") }).await;
    let router = one_pair(Dialect::Nixl, &first, &decode)
        .prefill("q", &second.url())
        .with(|with| with.connections = http2())
        .start()
        .await;
    let prefill_worker = async || {
        let answer = send(router.address, request()).await;
        assert_eq!(answer.status, StatusCode::OK);
        answer.header("x-conductor-prefill-worker").map(str::to_owned)
    };
    assert_eq!(prefill_worker().await.as_deref(), Some("p"));
    assert_eq!(prefill_worker().await.as_deref(), Some("q"));
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="p"}"#), 1.0);
    assert_eq!(first.connections(), 1);
}
