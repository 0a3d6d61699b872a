//! Secrets: no key appears in any log, page, answer or record, whatever is requested with it and wherever it is
//! misplaced.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use harness::{Client, TestRouter, eventually, route_all};
use http::Method;
use tracing_subscriber::fmt::MakeWriter;

use crate::{chat, fast_fleet};

/// Keys to search for afterwards.
const CLIENT: &str = "sk-of-the-client-93c1";
const ENGINE: &str = "sk-of-the-engine-55ad";
const ADMIN: &str = "sk-of-the-admin-07fe";
const INDEXER: &str = "sk-of-the-indexer-b204";
const MISTYPED: &str = "sk-of-the-cleint-93c1";
const SECRETS: [&str; 5] = [CLIENT, ENGINE, ADMIN, INDEXER, MISTYPED];

/// Buffer of all log lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Texts by their source.
#[derive(Default)]
struct CollectedTexts(Vec<(String, String)>);

impl CollectedTexts {
    async fn ask(
        &mut self,
        client: &Client,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) {
        let sent = client
            .stream(method, path, headers, Bytes::from(body.to_owned()))
            .await;
        let answer = sent.unwrap().whole().await.unwrap();
        let collected = format!("{} {:?} {}", answer.status, answer.headers, answer.text());
        self.0.push((path.to_owned(), collected));
    }
}

/// Starts a router with every kind of key there is, in files of this folder.
async fn with_keys(folder: &Path, workers: &str) -> TestRouter {
    let files = [
        ("client", CLIENT),
        ("engine", ENGINE),
        ("admin", ADMIN),
        ("indexer", INDEXER),
    ];
    for (name, key) in files {
        std::fs::write(folder.join(name), key).unwrap();
    }
    let toml = format!(
        "admin-api-key = {{ file = {:?} }}\n[clients.x]\nkey = {{ file = {:?} }}\nrequests-per-minute = 1_000\n\
         [record]\nfile = {:?}\nsample = 1.0\ncolumns = \"all\"\n\
         [indexer]\nlisten = \"127.0.0.1:0\"\napi-key-file = {:?}\n\
         [pools.chat]\nauthorization = {{ file = {:?} }}\n{workers}{}",
        folder.join("admin"),
        folder.join("client"),
        folder.join("decisions.jsonl"),
        folder.join("indexer"),
        folder.join("engine"),
        route_all("cache-aware"),
    );
    TestRouter::start(&toml).await.unwrap()
}

const CHATS: &str = "/v1/chat/completions";

/// Shows a key to everybody, in every place where one may stand.
async fn show_everywhere(router: &TestRouter, collected: &mut CollectedTexts, key: &str) {
    let bearer = format!("Bearer {key}");
    for header in [("authorization", bearer.as_str()), ("x-api-key", key)] {
        for stream in [false, true] {
            let headers = [header, ("x-conductor-explain", "1"), ("x-request-id", "asked")];
            let body = chat("hi", stream).to_string();
            collected
                .ask(&router.client, Method::POST, CHATS, &headers, &body)
                .await;
        }
        for page in ["/v1/models", "/status", "/metrics", "/admin/config"] {
            collected
                .ask(&router.client, Method::GET, page, &[header], "")
                .await;
        }
        let add = r#"{"type": "mixed", "instance": "127.0.0.1:1"}"#;
        let indexer = router.indexer.as_ref().unwrap();
        for (client, path, body) in [
            (&router.client, "/tokenize", r#"{"prompt":"hi"}"#),
            (&router.client, "/instances/add", add),
            (&router.admin, "/admin/reload", ""),
            (indexer, "/query", "{}"),
        ] {
            collected.ask(client, Method::POST, path, &[header], body).await;
        }
    }
}

/// Reads every page there is.
async fn read_everything(router: &TestRouter, collected: &mut CollectedTexts) {
    for page in [
        "/admin/config",
        "/admin/policies",
        "/admin/feeds",
        "/admin/trials",
        "/admin/explain/asked",
        "/status",
        "/metrics",
    ] {
        collected.ask(&router.admin, Method::GET, page, &[], "").await;
    }
}

#[tokio::test]
async fn no_key_is_shown() {
    let log = Log::default();
    let trace = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(log.clone())
        .finish();
    let _ = tracing_subscriber::util::SubscriberInitExt::try_init(trace);
    let fleet = fast_fleet(1).await;
    let folder = tempfile::tempdir().unwrap();
    let router = with_keys(folder.path(), &fleet.workers_toml()).await;
    let mut collected = CollectedTexts::default();
    for key in SECRETS {
        show_everywhere(&router, &mut collected, key).await;
    }
    // A key that cannot be had, and comes back.
    let key = folder.path().join("client");
    std::fs::write(&key, "").unwrap();
    router
        .admin_shows("/admin/config", "the problem is reported", |page| {
            page["problems"][0].is_object()
        })
        .await;
    read_everything(&router, &mut collected).await;
    std::fs::write(&key, CLIENT).unwrap();
    router
        .admin_shows("/admin/config", "it is corrected", |page| {
            page["problems"][0].is_null()
        })
        .await;
    let record = folder.path().join("decisions.jsonl");
    eventually("the decisions are written down", || async {
        std::fs::metadata(&record).is_ok_and(|file| file.len() > 0)
    })
    .await;
    router.stop().await.unwrap();

    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(log.contains("DEBUG"), "everything was logged");
    collected.0.push(("the log".into(), log));
    collected
        .0
        .push(("the record".into(), std::fs::read_to_string(&record).unwrap()));
    for (whose, text) in &collected.0 {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{whose} contains {secret}");
        }
    }
    let mut answers = collected.0.iter();
    assert!(answers.any(|(whose, text)| whose == CHATS && text.starts_with("200")));
}
