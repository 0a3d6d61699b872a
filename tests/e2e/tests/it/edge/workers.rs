//! Workers behind TLS, and how many connections they get.

use std::sync::Arc;

use harness::{Fleet, TestRouter, eventually_ok, route_all};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::tls::{Authority, Identity};
use crate::realtime::Socket;
use crate::{chat, fast_fleet};

/// Starts TLS in front of an engine, with client certificates of the authority; returns its port.
async fn terminate(engine: &str, authority: &Authority, shown: &Identity) -> (u16, JoinSet<()>) {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(shown.certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let engine = engine.trim_start_matches("http://").to_owned();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, engine) = (acceptor.clone(), engine.clone());
            connections.spawn(async move {
                let mut client = acceptor.accept(stream).await?;
                let mut engine = TcpStream::connect(engine).await?;
                copy_bidirectional(&mut client, &mut engine).await
            });
        }
    });
    (port, serving)
}

fn toml(port: u16, tls: &str) -> String {
    format!(
        "connect-timeout = \"1m\"\n[pools.chat]\ntokenize = \"off\"\n{tls}\n[[pools.chat.workers]]\nname = \"w0\"\n\
         url = \"https://127.0.0.1:{port}\"\nkv-events = \"off\"\n{}",
        route_all("round-robin")
    )
}

#[tokio::test]
async fn a_websocket_reaches_a_worker_behind_tls() {
    let fleet: Fleet = fast_fleet(1).await;
    let workers = Authority::new();
    let shown = workers.vouch("worker.test");
    let (port, _serving) = terminate(&fleet.engines[0].url(), &workers, &shown).await;
    let own = workers.vouch("router.test");
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("{path:?}")
    };
    let tls = format!(
        "tls = {{ ca = {}, server-name = \"worker.test\", cert = {}, key = {} }}",
        file("ca.crt", &workers.pem()),
        file("router.crt", &own.certificate),
        file("router.key", &own.key),
    );
    let router = TestRouter::start(&toml(port, &tls)).await.unwrap();
    let mut socket = Socket::open(&router, "?model=mock", &[]).await.unwrap();
    assert_eq!(socket.receive().await.unwrap()["type"], "session.created");
    assert_eq!(socket.transcribe(2).await.unwrap()["text"], "6 6 ");
}

#[tokio::test]
async fn a_worker_behind_tls_is_used_once_both_sides_trust_each_other() {
    let fleet: Fleet = fast_fleet(1).await;
    let (workers, others) = (Authority::new(), Authority::new());
    let shown = workers.vouch("worker.test");
    let (port, _serving) = terminate(&fleet.engines[0].url(), &workers, &shown).await;
    let router = TestRouter::start(&toml(port, "tls = {}")).await.unwrap();
    let own = workers.vouch("router.test");
    for (name, text) in [
        ("ca.crt", workers.pem()),
        ("other.crt", others.pem()),
        ("router.crt", own.certificate),
        ("router.key", own.key),
    ] {
        std::fs::write(router.path(name), text).unwrap();
    }
    // Once for each: an authority that did not vouch, a name that is not in the certificate, nothing shown.
    let identity = "cert = \"router.crt\", key = \"router.key\"";
    let good = format!("tls = {{ ca = \"ca.crt\", server-name = \"worker.test\", {identity} }}");
    for bad in [
        format!("tls = {{ ca = \"other.crt\", server-name = \"worker.test\", {identity} }}"),
        format!("tls = {{ ca = \"ca.crt\", {identity} }}"),
        "tls = { ca = \"ca.crt\", server-name = \"worker.test\" }".to_owned(),
    ] {
        let generation = router.admin("/admin/config").await.unwrap()["generation"].as_u64();
        router.save_config(&toml(port, &bad)).unwrap();
        router
            .admin_shows("/admin/config", "it is active", |page| {
                page["generation"].as_u64() > generation
            })
            .await;
        let answer = router
            .client
            .post("/v1/chat/completions", &chat("hello", false))
            .await
            .unwrap();
        assert!(answer.status.is_server_error(), "{bad}: {}", answer.text());
    }
    router.save_config(&toml(port, &good)).unwrap();
    let answer = eventually_ok("the worker answers", || async {
        let answer = router
            .client
            .post("/v1/chat/completions", &chat("hello", false))
            .await
            .unwrap();
        if answer.status == 200 {
            Ok(answer)
        } else {
            Err(answer.text())
        }
    })
    .await;
    assert_eq!(answer.json().unwrap()["object"], "chat.completion");
    let mut stream = router
        .client
        .open("/v1/chat/completions", &chat("hello", true))
        .await
        .unwrap();
    let mut text = Vec::new();
    while let Some(chunk) = stream.chunk().await.unwrap() {
        text.extend_from_slice(&chunk);
    }
    assert!(
        text.ends_with(b"data: [DONE]\n\n"),
        "{}",
        String::from_utf8_lossy(&text)
    );
}

#[tokio::test]
async fn a_request_without_a_connection_gets_an_error_and_the_worker_is_not_blamed() {
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let toml = format!(
        "connect-timeout = \"100ms\"\nattempts = 1\n[pools.chat]\ntokenize = \"off\"\nconnections = {{ max = 1 }}\n\
         [[pools.chat.workers]]\nname = \"w0\"\nurl = \"{url}\"\nkv-events = \"off\"\n{}",
        route_all("round-robin")
    );
    let router = TestRouter::start_at_once(&toml).await.unwrap();
    let client = router.client.clone();
    let mut busy = JoinSet::new();
    busy.spawn(async move {
        let _ = client.post("/v1/chat/completions", &chat("hello", false)).await;
    });
    // Connections of health checks come first.
    let mut accepted = Vec::new();
    loop {
        let (stream, _) = silent.accept().await.unwrap();
        let mut start = [0; 4];
        let length = stream.peek(&mut start).await.unwrap_or(0);
        accepted.push(stream);
        if start[..length] == *b"POST" {
            break;
        }
    }
    let answer = router
        .client
        .post("/v1/chat/completions", &chat("hello", false))
        .await
        .unwrap();
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.json().unwrap()["error"]["code"], "no_worker_reachable");
    let page = router.admin.get("/metrics").await.unwrap().text();
    assert!(
        page.contains("conductor_worker_ejected{worker=\"w0\"} 0"),
        "{page}"
    );
    busy.abort_all();
}
