//! Events reach real components, change what they decide, and cost no request where a handler misbehaves.

use std::fmt::Write as _;

use harness::{TestRouter, avoids_failed_workers, route_all, spins_at_events, traps_at_events};
use http::StatusCode;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{Stage, Traffic, mine};
use crate::{chat, fast_fleet};

/// Worker that answers every request with an error.
struct Troubled {
    url: String,
    _serving: JoinSet<()>,
}

impl Troubled {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that disconnects retries.
                let _ = refuse(stream).await;
            }
        });
        Self {
            url,
            _serving: serving,
        }
    }
}

/// Reads one request to its end and answers it.
async fn refuse(mut stream: TcpStream) -> std::io::Result<()> {
    let mut traffic_state = Vec::new();
    while !is_whole(&traffic_state) {
        if stream.read_buf(&mut traffic_state).await? == 0 {
            return Ok(());
        }
    }
    let answer = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    stream.write_all(answer.as_bytes()).await
}

fn is_whole(traffic_state: &[u8]) -> bool {
    let text = String::from_utf8_lossy(traffic_state);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() >= length.parse().unwrap_or(0))
}

/// Activates `mine` with these bytes on a router over these workers.
async fn deciding(bytes: &[u8], workers: &str) -> TestRouter {
    let router = TestRouter::start(&format!("{workers}{}", route_all("round-robin"))).await;
    let router = router.unwrap();
    router.save_policy("mine", bytes).unwrap();
    let loaded = |page: &Value| mine(page)["sha256"].is_string();
    router
        .admin_shows("/admin/policies", "it is loaded", loaded)
        .await;
    reconfigure(&router, workers).await;
    router
}

async fn reconfigure(router: &TestRouter, workers: &str) {
    router
        .save_config(&format!("{workers}{}", route_all("mine")))
        .unwrap();
    router.admin.post("/admin/reload", &Value::Null).await.unwrap();
}

#[tokio::test]
async fn a_policy_learns_from_events_which_worker_to_avoid() {
    let (fleet, troubled) = (fast_fleet(1).await, Troubled::start().await);
    let mut workers = String::new();
    write!(
        workers,
        "[[pools.chat.workers]]\nname = \"bad\"\nurl = \"{}\"\n\n",
        troubled.url
    )
    .unwrap();
    let workers = format!(
        "{workers}{}\n[pools.chat.retries]\nstatuses = []\n[pools.chat.health]\npath = \"off\"\n\n",
        fleet.workers_toml()
    );
    let router = deciding(&avoids_failed_workers().unwrap(), &workers).await;
    let send_request = || async {
        router
            .client
            .post("/v1/chat/completions", &chat("hi", false))
            .await
            .unwrap()
    };
    let first = send_request().await;
    assert_eq!(first.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(first.header("x-conductor-worker"), "bad");
    harness::eventually("it receives the failure", || async {
        send_request().await.header("x-conductor-worker") == "w0"
    })
    .await;
    for _ in 0..10 {
        assert_eq!(send_request().await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn workers_that_come_and_go_while_it_serves_are_reported() {
    let fleet = fast_fleet(3).await;
    let two = harness::workers_toml(&fleet.engines[..2]);
    let router = deciding(&avoids_failed_workers().unwrap(), &two).await;
    let received = |count: u64| {
        let look = move |page: &Value| mine(page)["events"]["delivered"] == count;
        router.admin_shows("/admin/policies", "it receives its workers", look)
    };
    let mine = mine(&received(2).await);
    let kinds = [
        "request.dispatched",
        "request.failed",
        "worker.joined",
        "worker.left",
    ];
    assert_eq!(mine["events"]["kinds"], serde_json::json!(kinds), "{mine}");
    reconfigure(&router, &fleet.workers_toml()).await;
    received(3).await;
    reconfigure(&router, &two).await;
    let page = received(4).await;
    assert_eq!(super::mine(&page)["events"]["dropped"], 0, "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_traps_or_spins_fails_no_request_and_rests() {
    for (bytes, kind) in [(traps_at_events(), "trap"), (spins_at_events(), "deadline")] {
        let stage = Stage::start("", &bytes.unwrap()).await;
        let traffic = Traffic::start(&stage.router.client);
        let mine = stage
            .shows("it receives no more", |mine| mine["events"]["circuit"] == "open")
            .await;
        assert!(mine["events"]["faults"][kind].as_u64() >= Some(5), "{mine}");
        assert_eq!(mine["events"]["delivered"], 0, "{mine}");
        // Its decisions are as good as ever.
        assert_eq!(mine["decides"], mine["version"], "{mine}");
        assert_eq!(mine["faults"], 0, "{mine}");
        traffic.goes_on(20).await;
        stage.all_by("w0").await;
        assert_eq!(traffic.end().await, 0, "failed requests");
        let labels = format!("policy=\"mine\",kind=\"{kind}\"");
        let faults = format!("conductor_policy_event_faults_total{{{labels}}}");
        assert!(stage.metric(&faults).await >= 5.0);
        let dropped = "conductor_policy_events_total{policy=\"mine\",result=\"dropped\"}";
        assert!(stage.metric(dropped).await >= 5.0);
    }
}
