//! TLS, and users with passwords.

use std::fs;

use agreement::{AgreedStore as _, StoreEvent};
use nats_bus::{NatsBus, NatsLogin, NatsOptions, NatsStore};
use nats_server::NatsSite;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use replicas::{Bus, BusEvent, RouterId};

use crate::store::{self, one_copy};
use crate::{options, passed_on};

const LOGIN: &str = "authorization { user: \"router\", password: \"open sesame\" }";

/// Writes the certificates of an authority and of a server with the site's address.
fn certificates(site: &NatsSite) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec![site.address().ip().to_string()]).unwrap();
    let server = server.signed_by(&key, &authority).unwrap();
    for (name, text) in [
        ("ca.pem", authority.pem()),
        ("server.pem", server.pem()),
        ("server.key", key.serialize_pem()),
    ] {
        fs::write(site.folder().join(name), text).unwrap();
    }
}

/// Returns the options of a router with its password.
fn with_login(site: &NatsSite, router: u64, password: &str) -> NatsOptions {
    let password_file = site.folder().join(format!("password-{router}"));
    fs::write(&password_file, format!("{password}\n")).unwrap();
    NatsOptions {
        login: Some(NatsLogin {
            user: "router".to_owned(),
            password_file,
        }),
        ..options(site, "main", router)
    }
}

/// Waits until a store with these options has failed for this reason. The store may not be connected, nor may a bus
/// until then, which is started before.
async fn is_refused(options: &NatsOptions, reason: &str) {
    let mut bus = NatsBus::start(options, RouterId(3)).await.unwrap();
    let mut agreed = NatsStore::start(options, one_copy()).await.unwrap();
    loop {
        tokio::select! {
            event = bus.next() => assert_ne!(event, BusEvent::Connected),
            event = agreed.next() => match event {
                StoreEvent::Lost(why) if why.contains(reason) => return,
                StoreEvent::Lost(_) => {}
                event => panic!("not refused: {event:?}"),
            },
        }
    }
}

#[tokio::test]
async fn routers_with_the_password_share_and_one_without_it_is_not_connected() {
    let site = NatsSite::with(LOGIN).unwrap();
    let Some(_server) = site.start() else { return };
    let one = with_login(&site, 1, "open sesame");
    let one = NatsBus::start(&one, RouterId(1)).await.unwrap();
    let two = with_login(&site, 2, "open sesame");
    let mut agreed = NatsStore::start(&two, one_copy()).await.unwrap();
    let mut two = NatsBus::start(&two, RouterId(2)).await.unwrap();
    assert_eq!(passed_on(&one, &mut two, &[1]).await, [1]);
    store::synced(&mut agreed).await;

    let three = with_login(&site, 3, "open barley");
    is_refused(&three, "authorization violation").await;
    let missing = NatsOptions {
        credentials: Some(site.folder().join("none.creds")),
        ..options(&site, "main", 4)
    };
    let refused = NatsBus::start(&missing, RouterId(4)).await.unwrap_err();
    assert!(refused.to_string().contains("none.creds"), "{refused}");
}

#[tokio::test]
async fn a_refused_password_is_the_reason_of_a_store_that_is_away_and_a_corrected_one_is_read() {
    let site = NatsSite::with(LOGIN).unwrap();
    let Some(_server) = site.start() else { return };
    let mut agreed = NatsStore::start(&with_login(&site, 1, "open barley"), one_copy())
        .await
        .unwrap();
    loop {
        if let StoreEvent::Lost(why) = agreed.next().await
            && why.contains("authorization violation")
        {
            break;
        }
    }
    with_login(&site, 1, "open sesame");
    store::synced(&mut agreed).await;
}

#[tokio::test]
async fn routers_with_the_authority_share_over_tls_and_one_without_it_is_not_connected() {
    let site = NatsSite::new().unwrap();
    certificates(&site);
    let file = |name: &str| site.folder().join(name).display().to_string();
    let tls = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\" }}",
        file("server.pem"),
        file("server.key")
    );
    let Some(_server) = site.start_with(&tls) else {
        return;
    };
    let secure = |router: u64| NatsOptions {
        servers: vec![format!("tls://{}", site.address())],
        ca: Some(site.folder().join("ca.pem")),
        ..options(&site, "main", router)
    };
    let one = NatsBus::start(&secure(1), RouterId(1)).await.unwrap();
    let mut two = NatsBus::start(&secure(2), RouterId(2)).await.unwrap();
    assert_eq!(passed_on(&one, &mut two, &[1]).await, [1]);
    let mut agreed = NatsStore::start(&secure(2), one_copy()).await.unwrap();
    store::synced(&mut agreed).await;

    let unknown = NatsOptions {
        ca: None,
        ..secure(3)
    };
    // The client has no other name for a failed handshake.
    is_refused(&unknown, "IO error").await;
}
