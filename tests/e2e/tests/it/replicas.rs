//! Several routers that share their loads over a real `nats-server`, where one is installed.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use harness::{Fleet, TestRouter, route_all};
use serde_json::{Value, json};

use crate::fast_fleet;

/// Server that ends with its test.
struct NatsServer(Child);

impl NatsServer {
    /// Starts a server. `None` where none is installed: such a test has nothing to test with.
    fn start(port: u16) -> Option<Self> {
        let server = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let is_required = std::env::var_os("CONDUCTOR_REQUIRE_NATS").is_some();
        assert!(
            server.is_ok() || !is_required,
            "CONDUCTOR_REQUIRE_NATS is set, but nats-server cannot be started"
        );
        if server.is_err() {
            eprintln!("no nats-server is installed: nothing is tested");
        }
        server.ok().map(Self)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Starts a router of a fleet whose streams go on until they are dropped.
async fn router(port: u16, fleet: &str, name: &str, engines: &Fleet) -> TestRouter {
    let toml = format!(
        "[replicas]\nservers = [\"nats://127.0.0.1:{port}\"]\nfleet = \"{fleet}\"\nname = \"{name}\"\n{}{}",
        engines.workers_toml(),
        route_all("least-request")
    );
    TestRouter::start(&toml).await.unwrap()
}

async fn engines() -> Fleet {
    Fleet::start(2, |_, config| config.time_scale = 0.1)
        .await
        .unwrap()
}

async fn others(router: &TestRouter, states: &[&str]) -> Value {
    let what = format!("the other routers are {states:?}");
    router
        .admin_shows("/admin/replicas", &what, |page| {
            let others = page["others"].as_array().into_iter().flatten();
            others
                .map(|other| other["state"].as_str())
                .eq(states.iter().map(|state| Some(*state)))
        })
        .await
}

/// Waits until a router knows of so many requests at its workers, of all routers.
async fn requests(router: &TestRouter, wanted: u64) {
    let what = format!("the fleet has {wanted} requests");
    let sum = |page: &Value| -> u64 {
        let workers = page["pools"][0]["workers"].as_array().into_iter().flatten();
        workers
            .filter_map(|worker| worker["load"]["requests"].as_u64())
            .sum()
    };
    router
        .admin_shows("/status", &what, |page| sum(page) == wanted)
        .await;
}

fn stream() -> Value {
    json!({ "model": "mock", "prompt": "hello", "max_tokens": 2_000, "stream": true })
}

#[tokio::test]
async fn requests_of_one_router_are_known_to_the_other_and_leave_with_it() {
    let port = free_port();
    let Some(_nats) = NatsServer::start(port) else {
        return;
    };
    let engines = engines().await;
    let one = router(port, "main", "one", &engines).await;
    let two = router(port, "main", "two", &engines).await;
    let alone = router(port, "other", "alone", &engines).await;
    let page = others(&two, &["ready"]).await;
    assert_eq!(page["others"][0]["name"], "one");
    assert_eq!(page["others"][0]["same-config"], true);
    assert_eq!(page["others"][0]["same-fleet"], true);

    let first = one.client.open("/v1/completions", &stream()).await.unwrap();
    requests(&two, 1).await;
    let second = two.client.open("/v1/completions", &stream()).await.unwrap();
    requests(&one, 2).await;
    assert_ne!(
        first.header("x-conductor-worker"),
        second.header("x-conductor-worker"),
        "the second router takes the worker that the first left idle"
    );
    assert_eq!(
        two.leases("w").await.unwrap(),
        1.0,
        "metrics have the own requests"
    );
    assert_eq!(alone.admin("/admin/replicas").await.unwrap()["others"], json!([]));
    requests(&alone, 0).await;

    drop(first);
    requests(&two, 1).await;
    drop(second);
    requests(&one, 0).await;
    let third = one.client.open("/v1/completions", &stream()).await.unwrap();
    requests(&two, 1).await;
    drop(third);
    one.stop().await.unwrap();
    others(&two, &[]).await;
    requests(&two, 0).await;
}

#[tokio::test]
async fn routers_without_a_server_serve_alone_and_share_once_there_is_one() {
    let port = free_port();
    let engines = fast_fleet(1).await;
    let one = router(port, "main", "one", &engines).await;
    let two = router(port, "main", "two", &engines).await;
    let body = json!({ "model": "mock", "prompt": "hello", "max_tokens": 2 });
    let served = async |router: &TestRouter| {
        let answer = router.client.post("/v1/completions", &body).await.unwrap();
        assert_eq!(answer.status, 200);
    };
    served(&one).await;
    let page = one.admin("/admin/replicas").await.unwrap();
    assert_eq!(
        (&page["sharing"], &page["connected"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(one.client.get("/readyz").await.unwrap().status, 200);
    let Some(nats) = NatsServer::start(port) else {
        return;
    };
    others(&one, &["ready"]).await;
    drop(nats);
    others(&one, &["silent"]).await;
    served(&one).await;
    served(&two).await;
    let _nats = NatsServer::start(port);
    others(&one, &["ready"]).await;
}
