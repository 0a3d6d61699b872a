//! Tests of TLS between this listener and the worker client, and of errors in PEM files.

use std::io;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use worker_client::tls::{WorkerTls, WorkerTlsParts, pem, provider, server_name};

use super::*;

/// Certificate authority with an issued certificate and key as PEM.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn vouch(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = date_time_ymd(2099, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// Sends one byte in each direction.
async fn talk(server: &ServerTls, worker: &WorkerTls, host: &str) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = async {
        let (mut stream, _) = server.accept(listener.accept().await?.0, true).await?;
        let byte = stream.read_u8().await?;
        stream.write_u8(byte).await?;
        stream.flush().await
    };
    let connecting = async {
        let host = server_name(host).map_err(io::Error::other)?;
        let stream = TcpStream::connect(address).await?;
        let (mut stream, _) = worker.connect(&host, stream, false).await?;
        stream.write_u8(7).await?;
        stream.flush().await?;
        assert_eq!(stream.read_u8().await?, 7);
        Ok(())
    };
    tokio::try_join!(serving, connecting).map(|_| ())
}

#[tokio::test]
async fn a_worker_is_trusted_by_its_authority_and_name_and_may_request_our_certificate() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (ca, other_ca) = (ours.0.pem(), theirs.0.pem());
    let (certificate, key) = ours.vouch("worker.test");
    let server = |authorities: Option<&str>| {
        ServerTls::new(ServerTlsParts {
            certificate: certificate.as_bytes(),
            key: key.as_bytes(),
            client_authorities: authorities.map(str::as_bytes),
        })
        .unwrap()
    };
    let (client_certificate, client_key) = ours.vouch("router.test");
    let identity = (client_certificate.as_bytes(), client_key.as_bytes());
    let worker = |ca: &str, identity, server_name| {
        WorkerTls::new(WorkerTlsParts {
            authorities: Some(ca.as_bytes()),
            identity,
            server_name,
        })
        .unwrap()
    };
    let plain = server(None);
    talk(&plain, &worker(&ca, None, None), "worker.test")
        .await
        .unwrap();
    talk(&plain, &worker(&ca, None, Some("worker.test")), "127.0.0.1")
        .await
        .unwrap();
    talk(&plain, &worker(&ca, None, None), "other.test")
        .await
        .unwrap_err();
    talk(&plain, &worker(&other_ca, None, None), "worker.test")
        .await
        .unwrap_err();
    let connecting = server(Some(&ca));
    talk(&connecting, &worker(&ca, Some(identity), None), "worker.test")
        .await
        .unwrap();
    talk(&connecting, &worker(&ca, None, None), "worker.test")
        .await
        .unwrap_err();
    talk(
        &server(Some(&other_ca)),
        &worker(&ca, Some(identity), None),
        "worker.test",
    )
    .await
    .unwrap_err();
}

#[test]
fn a_certificate_has_its_end() {
    let (certificate, key) = Authority::new().vouch("a.test");
    let parts = ServerTlsParts {
        certificate: certificate.as_bytes(),
        key: key.as_bytes(),
        client_authorities: None,
    };
    let end = ServerTls::new(parts).unwrap().not_after();
    assert_eq!(
        end,
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_358_400))
    );
}

#[test]
fn invalid_certificates_and_keys_are_named_but_not_shown() {
    let (certificate, key) = Authority::new().vouch("a.test");
    let (_, other_key) = Authority::new().vouch("a.test");
    let check = |certificate: &str, key: &str, expected: &str| {
        let parts = ServerTlsParts {
            certificate: certificate.as_bytes(),
            key: key.as_bytes(),
            client_authorities: None,
        };
        let error = ServerTls::new(parts).unwrap_err().to_string();
        assert_eq!(error, expected);
    };
    check("", &key, "failed to read the certificate: there is none in it");
    check(
        &certificate,
        "secret",
        "failed to read the key: there is none in it",
    );
    check(
        &certificate,
        &certificate,
        "failed to read the key: there is none in it",
    );
    check(
        &certificate,
        &other_key,
        "failed to use the certificate with its key",
    );
}

#[tokio::test]
async fn http_2_is_spoken_where_both_sides_offer_it() {
    let authority = Authority::new();
    let (certificate, key) = authority.vouch("router.test");
    let server = ServerTls::new(ServerTlsParts {
        certificate: certificate.as_bytes(),
        key: key.as_bytes(),
        client_authorities: None,
    });
    let server = server.unwrap();
    let roots = pem::authorities(authority.0.pem().as_bytes()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for (offered, wanted, expected) in [
        (true, &[&b"h2"[..], b"http/1.1"][..], true),
        (true, &[b"http/1.1"], false),
        (true, &[], false),
        (false, &[b"h2", b"http/1.1"], false),
    ] {
        let mut client = client.clone();
        client.alpn_protocols = wanted.iter().map(|name| name.to_vec()).collect();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(client));
        let name = rustls::pki_types::ServerName::try_from("router.test").unwrap();
        let connecting = async { connector.connect(name, TcpStream::connect(address).await?).await };
        let serving = async { server.accept(listener.accept().await?.0, offered).await };
        let (_client, (_stream, is_http2)) = tokio::try_join!(connecting, serving).unwrap();
        assert_eq!(is_http2, expected, "{offered} {wanted:?}");
    }
}
