//! Two routers on a real `nats-server`, where one is installed; else the tests end at once and say so.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's own functions fail by panicking too"
)]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use nats_bus::{NatsBus, NatsOptions};
use replicas::{Bus, BusEvent, FleetSubject, RouterId, SubjectKind};

/// Server that ends with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server. `None` where none is installed.
fn server(port: u16) -> Option<Server> {
    let child = Command::new("nats-server")
        .args(["-a", "127.0.0.1", "-p", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let is_required = std::env::var_os("CONDUCTOR_REQUIRE_NATS").is_some();
    assert!(
        child.is_ok() || !is_required,
        "CONDUCTOR_REQUIRE_NATS is set, but nats-server cannot be started"
    );
    if child.is_err() {
        eprintln!("no nats-server is installed: nothing is tested");
    }
    child.ok().map(Server)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

async fn bus(port: u16, fleet: &str, router: u64) -> NatsBus {
    let options = NatsOptions {
        servers: vec![format!("nats://127.0.0.1:{port}")],
        fleet: fleet.to_owned(),
        name: format!("router-{router}"),
        credentials: None,
        ca: None,
    };
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
    let port = free_port();
    let Some(_server) = server(port) else { return };
    let (mut one, mut two, mut other) = (
        bus(port, "main", 1).await,
        bus(port, "main", 2).await,
        bus(port, "main2", 3).await,
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
    let port = free_port();
    let mut one = bus(port, "main", 1).await;
    assert!(!one.publish(load(1), vec![1]), "there is no server");
    let Some(first) = server(port) else { return };
    let mut two = bus(port, "main", 2).await;
    let received = passed_on(&one, &mut two, &[2]).await;
    assert_eq!(received, [2], "the dropped one is not sent later");
    drop(first);
    while one.next().await != BusEvent::Disconnected {}
    assert!(!one.publish(load(1), vec![3]));
    while two.next().await != BusEvent::Disconnected {}
    let Some(_second) = server(port) else { return };
    assert_eq!(passed_on(&one, &mut two, &[4]).await, [4], "subscribed again");
}
