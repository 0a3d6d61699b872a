//! Shared stores: events of a publisher reach the index, and a store without a publisher is detected.

use std::io::{Read, Write};
use std::net::TcpListener;

use harness::{Fleet, TestRouter, route_all};
use rmpv::Value as Msgpack;
use zmq::{Context, Socket, SocketType};

use crate::fast_fleet;

async fn router_over(fleet: &Fleet, store: &str) -> TestRouter {
    let toml = format!(
        "{}[stores.cache]\n{store}\n{}",
        fleet.workers_toml(),
        route_all("cache-aware")
    );
    TestRouter::start(&toml).await.unwrap()
}

/// Returns Mooncake's `stored` of one object under vLLM's key for this block.
pub(crate) fn stored(block: u64) -> Vec<u8> {
    let text = |text: &str| Msgpack::from(text);
    let key = format!("mock@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@{block:016x}");
    let now = 1_700_000_000_000_u64;
    let fields = [
        ("event_id", Msgpack::from(1)),
        ("timestamp", Msgpack::from(now)),
        ("event_type", text("stored")),
        ("tenant_id", text("default")),
        ("backend_id", text("store")),
        ("medium", text("cpu")),
        ("seq_hashes", Msgpack::Array(Vec::new())),
        ("object_key", text(&key)),
    ];
    let event = Msgpack::Map(
        fields
            .into_iter()
            .map(|(key, value)| (text(key), value))
            .collect(),
    );
    let batch = [Msgpack::from(now), Msgpack::Array(vec![event]), Msgpack::from(0)];
    let mut payload = Vec::new();
    rmpv::encode::write_value(&mut payload, &Msgpack::Array(batch.to_vec())).unwrap();
    payload
}

/// Returns a publisher of events, and its endpoint.
pub(crate) fn publisher() -> (Socket, String) {
    let publisher = Context::new().socket(SocketType::XPUB).unwrap();
    publisher.set_linger(0).unwrap();
    publisher.bind("tcp://127.0.0.1:*").unwrap();
    let endpoint = publisher.get_last_endpoint().unwrap().unwrap();
    (publisher, endpoint)
}

/// Waits until the publisher has a subscriber.
pub(crate) async fn subscribed(publisher: Socket) -> Socket {
    let waiting = tokio::task::spawn_blocking(move || {
        publisher.recv_bytes(0).unwrap();
        publisher
    });
    waiting.await.unwrap()
}

#[tokio::test]
async fn blocks_of_a_store_are_indexed_until_its_publisher_is_gone() {
    let (publisher, endpoint) = publisher();
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, &format!("kv-events = \"{endpoint}\"")).await;
    let publisher = subscribed(publisher).await;
    for sequence in 1..=2_u64 {
        let frames = [Vec::new(), sequence.to_be_bytes().to_vec(), stored(sequence)];
        publisher.send_multipart(frames, 0).unwrap();
    }
    let received = router.admin_shows("/admin/feeds", "the store's events were received", |page| {
        page["stores"][0]["stored"] == 2 && page["stores"][0]["state"] == "live"
    });
    assert!(received.await["stores"][0]["publishes"].is_null());
    let metrics = || async { router.admin.get("/metrics").await.unwrap().text() };
    let page = metrics().await;
    assert!(page.contains("conductor_index_store_blocks 2\n"), "{page}");
    drop(publisher);
    let gone = router.admin_shows("/admin/feeds", "the store is gone", |page| {
        page["stores"][0]["resets"] == 1 && page["stores"][0]["state"] == "connecting"
    });
    gone.await;
    let page = metrics().await;
    assert!(page.contains("conductor_index_store_blocks 0\n"), "{page}");
    assert!(
        page.contains("conductor_store_feed_live{store=\"cache\"} 0\n"),
        "{page}"
    );
}

/// Answers requests like a master without a publisher, until the test ends.
fn master() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let body = r#"{"enabled":false,"published_batches":0,"published_events":0,"dropped_events":0,"skipped_unparsed_keys":0}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[tokio::test]
async fn a_store_that_publishes_nothing_is_recognised() {
    let fleet = fast_fleet(1).await;
    let status = master();
    let router = router_over(
        &fleet,
        &format!("kv-events = \"tcp://127.0.0.1:1\"\nstatus = \"{status}\""),
    )
    .await;
    let queried = router.admin_shows("/admin/feeds", "the store was queried", |page| {
        page["stores"][0]["publishes"] == false
    });
    assert_eq!(queried.await["stores"][0]["state"], "connecting");
}
