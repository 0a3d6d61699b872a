//! Clients that are slow, many, or in the way of others; and listeners that move.

use std::net::TcpListener;

use harness::{Fleet, TestRouter, eventually, eventually_ok, route_all};

use super::raw::{Raw, chat};
use super::{metric, turned};
use crate::{fast_fleet, router_over, router_with};

const HALF_A_HEAD: &str = "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\n";
const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: r\r\n\r\n";

async fn router(server: &str) -> (Fleet, TestRouter) {
    let fleet = fast_fleet(1).await;
    let router = router_with(server, &fleet, "round-robin").await;
    (fleet, router)
}

/// Returns a client that was answered, and stays.
async fn idle(router: &TestRouter) -> Raw {
    let mut client = Raw::connect(router.client.base()).await.unwrap();
    client.send(HEALTH).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200);
    client
}

/// Checks that another client is served.
async fn check_served(router: &TestRouter) {
    let mut client = Raw::connect(router.client.base()).await.unwrap();
    client.send(chat()).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn half_open_clients_keep_no_one_from_being_served_and_are_given_up() {
    let (_fleet, router) = router("head-timeout = \"300ms\"\nmax-connections = 64\n").await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut client = Raw::connect(router.client.base()).await.unwrap();
        // Requests that wait for a slot are read later.
        client.send(HALF_A_HEAD).await.unwrap();
        slow.push(client);
    }
    check_served(&router).await;
    for mut client in slow {
        assert!(client.is_closed().await);
    }
    let given_up = turned(&router, "head-timeout").await + turned(&router, "evicted").await;
    assert!(given_up >= 200.0, "{given_up}");
}

#[tokio::test]
async fn a_body_that_dribbles_is_refused_and_one_that_flows_is_not() {
    let (_fleet, router) = router("body-timeout = \"300ms\"\nbody-rate = \"1KiB\"\n").await;
    let mut client = Raw::connect(router.client.base()).await.unwrap();
    client
        .send(format!("{HALF_A_HEAD}content-length: 100\r\n\r\n{{"))
        .await
        .unwrap();
    let answer = client.answer().await.unwrap();
    assert_eq!(
        (answer.status, &*answer.code()),
        (408, "body_timeout"),
        "{answer:?}"
    );
    assert!(client.is_closed().await);
    assert_eq!(turned(&router, "body-timeout").await, 1.0);
    // Ten kilobytes have earned ten seconds.
    let body = crate::chat(&"word ".repeat(3_000), false).to_string();
    let (first, rest) = body.split_at(10 << 10);
    let mut client = Raw::connect(router.client.base()).await.unwrap();
    let length = body.len();
    client
        .send(format!("{HALF_A_HEAD}content-length: {length}\r\n\r\n{first}"))
        .await
        .unwrap();
    let before = turned(&router, "body-timeout").await;
    client.send(rest).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert_eq!(turned(&router, "body-timeout").await, before);
}

#[tokio::test]
async fn the_longest_idle_connection_is_closed_for_a_waiting_client() {
    let (_fleet, router) = router("max-connections = 2\n").await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(idle(&router).await);
    }
    check_served(&router).await;
    assert!(clients.remove(0).is_closed().await);
    assert_eq!(turned(&router, "evicted").await, 1.0);
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_time() {
    let (_fleet, router) = router("keep-alive-timeout = \"100ms\"\n").await;
    let mut client = idle(&router).await;
    assert!(client.is_closed().await);
    eventually("it is counted", || async {
        turned(&router, "keep-alive-timeout").await == 1.0
    })
    .await;
}

#[tokio::test]
async fn thousands_of_idle_connections_are_in_no_ones_way() {
    const IDLE: usize = 2_100;
    if conductor::raise_open_files().is_some_and(|limit| limit < 3 * IDLE as u64) {
        eprintln!("skipped: too few files may be open here");
        return;
    }
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let mut clients = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        clients.push(idle(&router).await);
    }
    check_served(&router).await;
    let connected = metric(&router, "conductor_client_connections ").await;
    assert!(connected >= IDLE as f64, "{connected}");
    // None of them was forgotten.
    for client in &mut clients {
        client.send(HEALTH).await.unwrap();
    }
    for mut client in clients {
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
}

/// Port that only one test uses at 127.0.0.3: it holds the same port of another address.
struct HeldPort(TcpListener);

impl HeldPort {
    fn new() -> Self {
        Self(TcpListener::bind("127.0.0.4:0").unwrap())
    }

    /// Returns the address at which a router may listen.
    fn address(&self) -> String {
        format!("127.0.0.3:{}", self.0.local_addr().unwrap().port())
    }
}

#[tokio::test]
async fn a_listener_moves_with_the_configuration_and_who_is_connected_stays() {
    let (fleet, router) = router("").await;
    let mut before = Raw::connect(router.client.base()).await.unwrap();
    before.send(chat()).await.unwrap();
    assert_eq!(before.answer().await.unwrap().status, 200);
    let held = [HeldPort::new(), HeldPort::new(), HeldPort::new()];
    let [listen, admin, taken] = held.each_ref().map(HeldPort::address);
    let moved = |listen: &str, admin: &str| {
        format!(
            "policy-dir = \"policies\"\n[server]\nlisten = \"{listen}\"\nadmin-listen = \"{admin}\"\n{}{}",
            fleet.workers_toml(),
            route_all("round-robin")
        )
    };
    let save = |text: String| std::fs::write(router.path("conductor.toml"), text).unwrap();
    save(moved(&listen, &admin));
    let client = harness::Client::new(format!("http://{listen}"));
    let operator = harness::Client::new(format!("http://{admin}"));
    eventually("both have moved", || async {
        client.get("/health").await.is_ok() && operator.get("/admin/config").await.is_ok()
    })
    .await;
    assert!(Raw::connect(router.client.base()).await.is_err());
    before.send(chat()).await.unwrap();
    assert_eq!(before.answer().await.unwrap().status, 200);
    // If another process listens there, only the reported state changes.
    let _other = TcpListener::bind(&taken).unwrap();
    save(moved(&taken, &admin));
    let problem = eventually_ok("the move is refused", || async {
        let page = operator.get("/admin/config").await.unwrap().json().unwrap();
        let problem = page["problems"][0]["message"].as_str().map(str::to_owned);
        problem.ok_or(page)
    })
    .await;
    assert!(problem.contains("`server.listen`"), "{problem}");
    assert_eq!(client.get("/health").await.unwrap().status, 200);
}
