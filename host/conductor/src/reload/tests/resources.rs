//! Resources of the active configuration are renewed, whatever the file contains.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use http::{Method, StatusCode};

use super::*;

impl Scenario {
    /// Adds lines to the start of the configuration and applies it.
    async fn with(self, more: &str) -> Self {
        let text = before().replace("[policies.tuned]", &format!("{more}\n[policies.tuned]"));
        fs::write(self.path("conductor.toml"), text).unwrap();
        let (scenario, outcome) = self.reload(None).await;
        assert!(outcome.has_changes(), "{outcome:?}");
        scenario
    }

    /// Returns a scenario whose admin pages need the key of `new.key`.
    async fn locked() -> Self {
        let keys = "admin-api-key = { file = \"new.key\" }\nadmin-key-for-reads = true";
        Self::begin().await.with(keys).await
    }

    /// Returns the status of an admin page for a request with a key.
    async fn status_for(&self, key: &str) -> StatusCode {
        let headers = [("x-api-key", key)];
        let page = self
            .admin
            .stream(Method::GET, "/admin/config", &headers, bytes::Bytes::new());
        page.await.unwrap().whole().await.unwrap().status
    }

    async fn problems(&self) -> Vec<String> {
        let report = self.reloader.status.config();
        report
            .problems
            .iter()
            .map(|problem| problem.message.clone())
            .collect()
    }
}

#[track_caller]
fn is_refused(outcome: &ReloadOutcome) {
    assert!(matches!(outcome, ReloadOutcome::Refused { .. }), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_revoked_key_is_refused_while_the_file_is_broken() {
    let scenario = Scenario::locked().await;
    assert_eq!(scenario.status_for("new").await, StatusCode::OK);
    fs::write(scenario.path("conductor.toml"), "no-such-key = 1").unwrap();
    fs::write(scenario.path("new.key"), "newer").unwrap();
    let (scenario, outcome) = scenario.reload(None).await;
    is_refused(&outcome);
    assert_eq!(scenario.status_for("new").await, StatusCode::UNAUTHORIZED);
    assert_eq!(scenario.status_for("newer").await, StatusCode::OK);
    assert!(!scenario.problems().await.is_empty(), "the file is still refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_revoked_key_is_refused_while_the_file_is_missing() {
    let scenario = Scenario::locked().await;
    fs::remove_file(scenario.path("conductor.toml")).unwrap();
    fs::write(scenario.path("new.key"), "newer").unwrap();
    let (scenario, outcome) = scenario.reload(None).await;
    is_refused(&outcome);
    assert_eq!(scenario.status_for("new").await, StatusCode::UNAUTHORIZED);
    assert_eq!(scenario.status_for("newer").await, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_unreadable_key_of_the_active_configuration_is_reported_beside_the_mistakes_of_the_file() {
    let scenario = Scenario::locked().await;
    fs::write(scenario.path("conductor.toml"), "no-such-key = 1").unwrap();
    fs::remove_file(scenario.path("new.key")).unwrap();
    let (scenario, outcome) = scenario.reload(None).await;
    is_refused(&outcome);
    assert_eq!(scenario.status_for("new").await, StatusCode::OK);
    let problems = scenario.problems().await;
    let is_of_file = |problem: &String| problem.contains("no-such-key");
    assert!(problems.iter().any(is_of_file), "{problems:?}");
    let last = problems.last().unwrap();
    assert!(
        last.contains("the active configuration") && last.contains("new.key"),
        "{problems:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_changed_key_of_event_feeds_is_given_to_the_feeds() {
    let curve = |digit: u8| {
        let secret = String::from_utf8(vec![b'0' + digit; 40]).unwrap();
        let server = conductor_config::z85_key(SERVER_KEY).unwrap();
        let keys = kv_feed::CurveKeys::new(server, conductor_config::z85_key(&secret).unwrap());
        (secret, format!("{keys:?}"))
    };
    let ((first, shown_first), (second, shown_second)) = (curve(1), curve(2));
    let scenario = Scenario::begin().await;
    fs::write(scenario.path("curve.key"), first).unwrap();
    let pool = format!(
        "[pools.chat.kv-curve]\nserver-key = \"{SERVER_KEY}\"\nclient-key = {{ file = \"curve.key\" }}"
    );
    let scenario = scenario.with(&pool).await;
    assert!(scenario.state().await["discovery"].contains(&shown_first));
    fs::write(scenario.path("curve.key"), second).unwrap();
    let (scenario, outcome) = scenario.reload(None).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    let discovery = &scenario.state().await["discovery"];
    assert!(discovery.contains(&shown_second), "{discovery}");
    assert!(!discovery.contains(&shown_first), "{discovery}");
}

/// Starts an engine that refuses every key. Returns its URL, and the keys of queries for its event sources.
fn refusing_engine() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, keys) = std::sync::mpsc::sync_channel(64);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let key = head
                .iter()
                .find_map(|line| line.strip_prefix("authorization: Bearer "));
            if let Some(key) = key.filter(|_| head[0].contains("/kv_event_sources")) {
                let _ = sender.send(key.to_owned());
            }
            let _ = stream
                .write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    (url, keys)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a test ends its tasks with its runtime")]
async fn a_changed_key_of_a_pool_is_sent_to_the_pages_of_its_workers() {
    let (url, keys) = refusing_engine();
    let next_key = || keys.recv_timeout(Duration::from_secs(30)).unwrap();
    let scenario = Scenario::begin().await;
    fs::write(scenario.path("engine.key"), "first").unwrap();
    let pool = format!(
        "[pools.other]\nauthorization = {{ file = \"engine.key\" }}\nworkers = [{{ url = \"{url}\" }}]\n\
         [[routes]]\nmatch = {{ model = \"other\" }}\npool = \"other\"\npolicy = \"tuned\"\n"
    );
    let scenario = scenario.with(&pool).await;
    let discovery = Arc::clone(&scenario.reloader.live.discovery);
    tokio::spawn(discovery.run(CancellationToken::new()));
    assert_eq!(next_key(), "first");
    fs::write(scenario.path("engine.key"), "second").unwrap();
    let (_scenario, outcome) = scenario.reload(None).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    // A query with the key before may be on its way.
    assert!((0..3).any(|_| next_key() == "second"));
}

/// Public key of a publisher.
const SERVER_KEY: &str = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
