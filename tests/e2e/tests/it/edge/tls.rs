//! TLS from clients: certificates presented, requested, replaced under load, and broken.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use harness::{TestRouter, eventually, eventually_ok, route_all};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::raw::{Raw, chat};
use super::{metric, turned};
use crate::fast_fleet;
use crate::realtime::Socket;

/// Certificate authority.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// PEM.
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn vouch(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        Identity {
            certificate: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

/// Connects a client that trusts this authority, and maybe presents a certificate itself.
async fn connect(
    router: &TestRouter,
    trusted: &Authority,
    shown: Option<&Identity>,
) -> anyhow::Result<Raw<TlsStream<TcpStream>>> {
    Ok(Raw::over(dial(router.client.base(), trusted, shown).await?))
}

/// Opens the connection alone, to the listener at `base`.
async fn dial(
    base: &str,
    trusted: &Authority,
    shown: Option<&Identity>,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match shown {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?)?
        }
    };
    let address = base.trim_start_matches("http://");
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("router.test")?;
    let connector = TlsConnector::from(Arc::new(config));
    Ok(connector.connect(name, stream).await?)
}

fn save(router: &TestRouter, identity: &Identity) {
    for (name, text) in [
        ("server.crt", &identity.certificate),
        ("server.key", &identity.key),
    ] {
        std::fs::write(router.path(name), text).unwrap();
    }
}

/// Starts a router without TLS, so that its folder is known.
async fn router(authority: &Authority) -> (harness::Fleet, TestRouter, String) {
    let fleet = fast_fleet(1).await;
    let rest = format!("{}{}", fleet.workers_toml(), route_all("round-robin"));
    let router = TestRouter::start(&rest).await.unwrap();
    save(&router, &authority.vouch("router.test"));
    (fleet, router, rest)
}

const TLS: &str = "[server.tls]\ncert = \"server.crt\"\nkey = \"server.key\"\n";

async fn turn_on(router: &TestRouter, toml: &str, authority: &Authority) {
    router.save_config(toml).unwrap();
    eventually("TLS is spoken", || async {
        connect(router, authority, None).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_certificate_is_exchanged_while_requests_run_and_a_broken_one_is_not_taken() {
    let first = Authority::new();
    let (_fleet, router, rest) = router(&first).await;
    turn_on(&router, &format!("{TLS}{rest}"), &first).await;
    let mut early = connect(&router, &first, None).await.unwrap();
    early.send(chat()).await.unwrap();
    assert_eq!(early.answer().await.unwrap().status, 200);
    let days = metric(&router, "conductor_edge_tls_certificate_days_left").await;
    assert!(days > 1.0);
    let expiry = metric(&router, "conductor_edge_tls_certificate_expiry_timestamp_seconds").await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!((days - (expiry - now.as_secs_f64()) / 86_400.0).abs() < 0.01);

    let second = Authority::new();
    save(&router, &second.vouch("router.test"));
    eventually("the new certificate is shown", || async {
        connect(&router, &second, None).await.is_ok()
    })
    .await;
    assert!(connect(&router, &first, None).await.is_err());
    early.send(chat()).await.unwrap();
    assert_eq!(early.answer().await.unwrap().status, 200);

    let reloads = "conductor_config_reloads_total{outcome=\"refused\"";
    let refused = metric(&router, reloads).await;
    std::fs::write(router.path("server.crt"), "no certificate").unwrap();
    let problem = eventually_ok("the broken one is reported", || async {
        let page = router.admin("/admin/config").await.unwrap();
        let problem = page["problems"][0]["message"].as_str().map(str::to_owned);
        problem.ok_or(page)
    })
    .await;
    assert!(
        problem.contains("[server.tls]") && problem.contains("certificate"),
        "{problem}"
    );
    let page = router.admin.get("/metrics").await.unwrap().text();
    assert!(metric(&router, reloads).await >= refused, "{page}");
    let mut late = connect(&router, &second, None).await.unwrap();
    late.send(chat()).await.unwrap();
    assert_eq!(late.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_websocket_is_opened_over_tls() {
    let authority = Authority::new();
    let (_fleet, router, rest) = router(&authority).await;
    turn_on(&router, &format!("{TLS}{rest}"), &authority).await;
    let stream = dial(router.client.base(), &authority, None).await.unwrap();
    let mut socket = Socket::over(stream, "router.test", "?model=mock", &[])
        .await
        .unwrap();
    assert_eq!(socket.receive().await.unwrap()["type"], "session.created");
    assert_eq!(socket.transcribe(2).await.unwrap()["text"], "6 6 ");
}

#[tokio::test]
async fn clients_without_tls_and_silent_ones_are_given_up_and_counted() {
    let authority = Authority::new();
    let (_fleet, router, rest) = router(&authority).await;
    let toml = format!("head-timeout = \"2s\"\n{TLS}{rest}");
    turn_on(&router, &toml, &authority).await;
    let mut plain = Raw::connect(router.client.base()).await.unwrap();
    plain.send(chat()).await.unwrap();
    // The answer is an alert, not HTTP.
    assert!(plain.answer().await.is_err());
    eventually("a failure is counted", || async {
        turned(&router, "tls-failed").await >= 1.0
    })
    .await;
    let mut silent = Raw::connect(router.client.base()).await.unwrap();
    assert!(silent.is_closed().await);
    assert!(turned(&router, "tls-timeout").await >= 1.0);
    assert!(metric(&router, "conductor_edge_tls_handshakes_total").await >= 1.0);
}

#[tokio::test]
async fn with_an_authority_for_clients_only_its_clients_come_in() {
    let authority = Authority::new();
    let (_fleet, router, rest) = router(&authority).await;
    let ours = Authority::new();
    std::fs::write(router.path("clients.crt"), ours.pem()).unwrap();
    router
        .save_config(&format!("{TLS}client-ca = \"clients.crt\"\n{rest}"))
        .unwrap();
    let known = ours.vouch("client.test");
    let answer = eventually_ok("a known client is answered", || async {
        let mut client = connect(&router, &authority, Some(&known)).await?;
        client.send(chat()).await?;
        client.answer().await
    })
    .await;
    assert_eq!(answer.status, 200);
    let stranger = authority.vouch("client.test");
    for shown in [None, Some(&stranger)] {
        // In TLS 1.3 the client learns of it when it reads.
        let Ok(mut client) = connect(&router, &authority, shown).await else {
            continue;
        };
        let _ = client.send(chat()).await;
        assert!(client.answer().await.is_err());
    }
    assert!(turned(&router, "tls-failed").await >= 2.0);
}

/// Returns the status of a page on a listener with TLS.
async fn page(base: &str, trusted: &Authority, path: &str, headers: &str) -> anyhow::Result<u16> {
    let mut client = Raw::over(dial(base, trusted, None).await?);
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    client.send(request).await?;
    Ok(client.answer().await?.status)
}

#[tokio::test]
async fn the_admin_listener_and_the_indexer_exchange_certificates_and_keys_while_they_run() {
    let first = Authority::new();
    let fleet = fast_fleet(1).await;
    let rest = format!("{}{}", fleet.workers_toml(), route_all("round-robin"));
    let plain = format!("[indexer]\nlisten = \"127.0.0.1:0\"\n{rest}");
    let router = TestRouter::start(&plain).await.unwrap();
    let (admin, indexer) = (router.admin.base(), router.indexer.as_ref().unwrap().base());
    save(&router, &first.vouch("router.test"));
    let files = "cert = \"server.crt\"\nkey = \"server.key\"\n";
    let secured = |key: &str| {
        format!(
            "[server.admin-tls]\n{files}[indexer]\nlisten = \"127.0.0.1:0\"\n{key}[indexer.tls]\n{files}{rest}"
        )
    };
    router.save_config(&secured("")).unwrap();
    for (base, path) in [(admin, "/admin/config"), (indexer, "/services")] {
        let status = eventually_ok("TLS is spoken", || page(base, &first, path, "")).await;
        assert_eq!(status, 200, "{path}");
        // The answer is an alert, not HTTP.
        let mut client = Raw::connect(base).await.unwrap();
        client
            .send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        assert!(client.answer().await.is_err());
    }
    // Clients connect as before.
    assert_eq!(router.client.get("/health").await.unwrap().status.as_u16(), 200);

    let second = Authority::new();
    save(&router, &second.vouch("router.test"));
    std::fs::write(router.path("indexer.key"), "secret\n").unwrap();
    router
        .save_config(&secured("api-key = { file = \"indexer.key\" }\n"))
        .unwrap();
    for base in [admin, indexer] {
        eventually_ok("the new certificate is shown", || {
            page(base, &second, "/health", "")
        })
        .await;
        assert!(page(base, &first, "/health", "").await.is_err());
    }
    let key = |key: &str| format!("x-api-key: {key}\r\n");
    eventually("the key is required", || async {
        page(indexer, &second, "/services", "").await.ok() == Some(401)
    })
    .await;
    assert_eq!(
        page(indexer, &second, "/services", &key("secret")).await.unwrap(),
        200
    );
    std::fs::write(router.path("indexer.key"), "other\n").unwrap();
    eventually("the new key is required", || async {
        page(indexer, &second, "/services", &key("other")).await.ok() == Some(200)
    })
    .await;
    assert_eq!(
        page(indexer, &second, "/services", &key("secret")).await.unwrap(),
        401
    );
}
