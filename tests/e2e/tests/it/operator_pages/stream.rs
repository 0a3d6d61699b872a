//! `GET /admin/stream` and `GET /admin/history`.

use std::collections::VecDeque;

use bytes::Bytes;
use harness::{Client, Stream, TestRouter};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::get;
use crate::{answered, fast_fleet, router_with};

/// Streams that the router serves at a time.
const MOST: usize = 32;

/// Reader of an event stream.
struct Events {
    stream: Stream,
    text: String,
    /// Events that have come, with their data.
    pending: VecDeque<(String, Value)>,
}

impl Events {
    async fn open(client: &Client, topics: &str) -> Self {
        let path = format!("/admin/stream?topics={topics}");
        let stream = client
            .stream(Method::GET, &path, &[], Bytes::new())
            .await
            .unwrap();
        assert_eq!(stream.status, StatusCode::OK);
        assert_eq!(stream.header("content-type"), "text/event-stream");
        Self {
            stream,
            text: String::new(),
            pending: VecDeque::new(),
        }
    }

    /// Returns the next event, or `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            let chunk = self.stream.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                if let (Some(name), Some(data)) = (field("event: "), field("data: ")) {
                    let data = serde_json::from_str(data).unwrap();
                    self.pending.push_back((name.to_owned(), data));
                }
                self.text = rest.to_owned();
            }
        }
    }

    /// Returns the data of the next event of a topic that satisfies `look`.
    async fn until(&mut self, topic: &str, look: impl Fn(&Value) -> bool) -> Value {
        loop {
            let (name, data) = self.next().await.expect("the stream goes on");
            if name == topic && look(&data) {
                return data;
            }
        }
    }
}

async fn send(router: &TestRouter) -> String {
    answered(router).await.header("x-request-id").to_owned()
}

const RECORD: &str = "[record]\nexplain = 10\nexplain-sample = 1.0\n";

#[tokio::test]
async fn the_first_event_of_each_topic_has_everything_and_later_ones_what_changed() {
    let fleet = fast_fleet(2).await;
    let router = router_with(RECORD, &fleet, "round-robin").await;
    let first = send(&router).await;
    let mut events = Events::open(&router.admin, "fleet,requests,changes").await;
    let (topic, data) = events.next().await.unwrap();
    assert_eq!(topic, "fleet");
    assert_eq!(
        (&data["full"], &data["ready"]),
        (&json!(true), &json!(true)),
        "{data}"
    );
    let workers = data["workers"].as_array().unwrap();
    let names: Vec<_> = workers.iter().map(|worker| &worker["name"]).collect();
    assert_eq!(names, ["w0", "w1"], "{data}");
    assert_eq!(
        (&workers[0]["state"], &workers[0]["draining"]),
        (&json!("ok"), &json!(false))
    );
    assert_eq!(data["pools"][0]["name"], "chat", "{data}");
    let requests = events.until("requests", |_| true).await;
    assert_eq!(requests["requests"][0]["id"], first, "{requests}");
    let changes = events.until("changes", |_| true).await;
    assert_eq!(changes["changes"][0]["cause"], "start", "{changes}");

    let second = send(&router).await;
    let ended = |data: &Value| {
        let rows = data["requests"].as_array().unwrap();
        rows.iter()
            .any(|row| row["id"] == *second && row["outcome"] == "complete")
    };
    let requests = events.until("requests", ended).await;
    assert_eq!(requests["requests"].as_array().unwrap().len(), 1, "{requests}");
    send(&router).await;
    let busy = |data: &Value| {
        let rates = &data["pools"][0]["rates"];
        rates["requests_per_s"].as_f64() > Some(0.0)
    };
    let update = events.until("fleet", busy).await;
    assert_eq!(update["full"], false, "{update}");
}

#[tokio::test]
async fn a_change_reaches_the_viewers() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    let mut events = Events::open(&router.admin, "changes").await;
    events.until("changes", |_| true).await;
    router.save_config("[[").unwrap();
    let refused = |data: &Value| data["changes"][0]["kind"] == "config-refused";
    let data = events.until("changes", refused).await;
    let change = &data["changes"][0];
    assert_eq!(
        (&change["cause"], &change["result"]),
        (&json!("file"), &json!("refused")),
        "{data}"
    );
    assert!(change["problems"].as_u64() > Some(0), "{data}");
}

#[tokio::test]
async fn the_33rd_stream_is_refused_until_another_one_ends() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    let mut streams = Vec::new();
    for _ in 0..MOST {
        streams.push(Events::open(&router.admin, "fleet").await);
    }
    let refused = get(&router.admin, "/admin/stream", &[]).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.json().unwrap()["error"]["code"], "too_many_streams");
    streams.pop();
    harness::eventually("a stream is free", || async {
        let stream = router
            .admin
            .stream(Method::GET, "/admin/stream", &[], Bytes::new())
            .await;
        stream.unwrap().status == StatusCode::OK
    })
    .await;
}

#[tokio::test]
async fn streams_end_when_the_router_stops() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    let mut events = Events::open(&router.admin, "fleet").await;
    events.until("fleet", |_| true).await;
    let ends = async { while events.next().await.is_some() {} };
    let (stopped, ()) = tokio::join!(router.stop(), ends);
    stopped.unwrap();
}

#[tokio::test]
async fn an_unknown_topic_is_refused() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    let refused = get(&router.admin, "/admin/stream?topics=weather", &[]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(refused.json().unwrap()["error"]["code"], "query_invalid");
}

#[tokio::test]
async fn the_history_has_the_seconds_without_viewers_too() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    send(&router).await;
    let has_traffic = |page: &Value| {
        let rates = page["pools"]["chat"]["requests_per_s"].as_array();
        rates.is_some_and(|rates| rates.iter().any(|rate| rate.as_f64() > Some(0.0)))
    };
    let page = router
        .admin_shows("/admin/history", "the request in the history", has_traffic)
        .await;
    let samples = page["at"].as_array().unwrap().len();
    assert_eq!(page["step_s"], 1);
    assert_eq!(
        page["workers"]["chat/w0"]["in_flight"].as_array().unwrap().len(),
        samples
    );
    assert_eq!(page["pools"]["chat"]["tpot_s"].as_array().unwrap().len(), samples);
}
