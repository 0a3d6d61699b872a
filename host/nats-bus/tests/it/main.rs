//! Routers on a real `nats-server`, where one is installed; else the tests end at once with a notice.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's own functions fail by panicking too"
)]

mod accounts;
mod secure;
mod store;

use nats_bus::{NatsBus, NatsOptions};
use nats_server::NatsSite;
use replicas::{Bus, BusEvent, FleetSubject, RouterId, SubjectKind};

/// Returns the options of a router.
fn options(site: &NatsSite, fleet: &str, router: u64) -> NatsOptions {
    NatsOptions {
        servers: vec![site.url()],
        fleet: fleet.to_owned(),
        name: format!("router-{router}"),
        credentials: None,
        login: None,
        ca: None,
    }
}

async fn bus(site: &NatsSite, fleet: &str, router: u64) -> NatsBus {
    let options = options(site, fleet, router);
    NatsBus::start(&options, RouterId(router)).await.unwrap()
}

fn load(router: u64) -> FleetSubject {
    FleetSubject {
        kind: SubjectKind::Load,
        router: RouterId(router),
    }
}

/// Waits until the bus is connected.
async fn connected(bus: &mut NatsBus) {
    while bus.next().await != BusEvent::Connected {}
    bus.flush(std::time::Duration::from_secs(60)).await;
}

/// Returns the next message.
async fn message(bus: &mut NatsBus) -> (FleetSubject, Vec<u8>) {
    loop {
        if let BusEvent::Message { subject, payload } = bus.next().await {
            return (subject, payload);
        }
    }
}

#[tokio::test]
async fn a_fleet_receives_its_own_messages_and_no_router_its_own() {
    let site = NatsSite::new().unwrap();
    let Some(_server) = site.start() else { return };
    let (mut one, mut two, mut other) = (
        bus(&site, "main", 1).await,
        bus(&site, "main", 2).await,
        bus(&site, "main2", 3).await,
    );
    for bus in [&mut one, &mut two, &mut other] {
        connected(bus).await;
    }
    // A message is lost while the server does not have the subscription of its receiver yet: publish again and again.
    for _ in 0..5 {
        let received = until_received(&mut two, || {
            other.publish(load(3), vec![3]);
            one.publish(load(1), vec![1]);
        });
        assert_eq!(received.await, (load(1), vec![1]));
        let received = until_received(&mut one, || {
            other.publish(load(3), vec![3]);
            two.publish(load(2), vec![2]);
        });
        assert_eq!(received.await, (load(2), vec![2]));
    }
}

/// Calls `publish` until the router receives a message, and returns it.
async fn until_received(to: &mut NatsBus, publish: impl Fn()) -> (FleetSubject, Vec<u8>) {
    loop {
        publish();
        let received = tokio::time::timeout(std::time::Duration::from_millis(100), message(to)).await;
        if let Ok(received) = received {
            return received;
        }
    }
}

/// Publishes until the other router receives a message, and returns its payload.
async fn passed_on(from: &NatsBus, to: &mut NatsBus, payload: &[u8]) -> Vec<u8> {
    let publish = || {
        from.publish(load(1), payload.to_vec());
    };
    until_received(to, publish).await.1
}

#[tokio::test]
async fn a_bus_without_a_server_drops_messages_and_connects_once_there_is_one() {
    let site = NatsSite::new().unwrap();
    let mut one = bus(&site, "main", 1).await;
    assert!(!one.publish(load(1), vec![1]), "there is no server");
    let Some(first) = site.start() else { return };
    let mut two = bus(&site, "main", 2).await;
    let received = passed_on(&one, &mut two, &[2]).await;
    assert_eq!(received, [2], "the dropped one is not sent later");
    drop(first);
    while one.next().await != BusEvent::Disconnected {}
    assert!(!one.publish(load(1), vec![3]));
    while two.next().await != BusEvent::Disconnected {}
    let Some(_second) = site.start() else { return };
    // Subscribed again. Messages of the first connection may still wait.
    loop {
        match &passed_on(&one, &mut two, &[4]).await[..] {
            [4] => break,
            [2] => {}
            other => panic!("the dropped one is sent later: {other:?}"),
        }
    }
}
