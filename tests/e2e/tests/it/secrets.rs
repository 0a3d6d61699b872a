//! Secrets: no key appears in any log, page, answer or record, whatever is requested with it and wherever it is
//! misplaced.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use harness::{Client, TestRouter, eventually, route_all};
use http::Method;
use source_servers::HttpSd;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::{chat, fast_fleet};

/// Keys to search for afterwards.
const CLIENT: &str = "sk-of-the-client-93c1";
const ENGINE: &str = "sk-of-the-engine-55ad";
const ADMIN: &str = "sk-of-the-admin-07fe";
const INDEXER: &str = "sk-of-the-indexer-b204";
const MISTYPED: &str = "sk-of-the-cleint-93c1";
const REGISTRY: &str = "sk-of-the-registry-d18b";
const SECRETS: [&str; 6] = [CLIENT, ENGINE, ADMIN, INDEXER, REGISTRY, MISTYPED];

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

/// Text that stands in a prompt, a key, a header and a query.
const MARKER: &str = "marker-51c7e0";

/// Texts by their source.
#[derive(Default)]
struct CollectedTexts(Vec<(String, String)>);

impl CollectedTexts {
    async fn send_request(
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
        ("registry", REGISTRY),
    ];
    for (name, key) in files {
        std::fs::write(folder.join(name), key).unwrap();
    }
    // It refuses each query.
    let registry = HttpSd::start("[]").unwrap();
    registry.require("another");
    let toml = format!(
        "admin-api-key = {{ file = {:?} }}\n[clients.x]\nkey = {{ file = {:?} }}\nrequests-per-minute = 1_000\n\
         [record]\nfile = {:?}\nsample = 1.0\ncolumns = \"all\"\n\
         [indexer]\nlisten = \"127.0.0.1:0\"\napi-key-file = {:?}\n\
         [discovery.registry]\npool = \"chat\"\nhttp-sd = \"{}\"\nbearer = {{ file = {:?} }}\n\
         [pools.chat]\nauthorization = {{ file = {:?} }}\n{workers}{}",
        folder.join("admin"),
        folder.join("client"),
        folder.join("decisions.jsonl"),
        folder.join("indexer"),
        registry.url(),
        folder.join("registry"),
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
                .send_request(&router.client, Method::POST, CHATS, &headers, &body)
                .await;
        }
        for page in ["/v1/models", "/status", "/metrics", "/admin/config"] {
            collected
                .send_request(&router.client, Method::GET, page, &[header], "")
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
            collected
                .send_request(client, Method::POST, path, &[header], body)
                .await;
        }
    }
}

/// Reads every page there is.
async fn read_everything(router: &TestRouter, collected: &mut CollectedTexts) {
    for page in [
        "/admin/config",
        "/admin/policies",
        "/admin/discovery",
        "/admin/feeds",
        "/admin/trials",
        "/admin/explain/asked",
        "/status",
        "/metrics",
    ] {
        collected
            .send_request(&router.admin, Method::GET, page, &[], "")
            .await;
    }
}

#[tokio::test]
async fn no_key_is_shown() {
    LazyLock::force(&LOG);
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

    let log = LOG.text();
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

/// Log of the whole process, which all tests of this file read.
static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(log.clone())
        .finish();
    tracing_subscriber::util::SubscriberInitExt::try_init(lines).expect("the process has no other log");
    log
});

impl Log {
    /// Returns the lines so far.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

#[tokio::test]
async fn no_prompt_key_header_or_query_is_in_a_log_or_a_metric() {
    LazyLock::force(&LOG);
    let fleet = fast_fleet(1).await;
    let toml = format!(
        "[log]\naccess = \"access.jsonl\"\n[record]\nfile = \"decisions.jsonl\"\nsample = 1.0\ncolumns = \"all\"\n\
         [clients.x]\nkey-sha256 = [\"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"]\n{}{}",
        fleet.workers_toml(),
        route_all("cache-aware"),
    );
    let router = TestRouter::start(&toml).await.unwrap();
    let (path, wrong) = (format!("{CHATS}?{MARKER}={MARKER}"), format!("Bearer {MARKER}"));
    let mut collected = CollectedTexts::default();
    for (key, prompt) in [("Bearer test", MARKER), (&wrong, MARKER), ("Bearer test", "")] {
        let headers = [
            ("authorization", key),
            ("x-session-id", MARKER),
            ("x-other", MARKER),
        ];
        let body = match prompt {
            "" => format!("{{\"{MARKER}"),
            prompt => chat(prompt, true).to_string(),
        };
        let sent = router
            .client
            .stream(Method::POST, &path, &headers, body.into())
            .await;
        sent.unwrap().whole().await.unwrap();
    }
    for body in [
        format!(r#"{{"model":"mock","prompt":"{MARKER}"}}"#),
        format!(r#"{{"model":"mock","messages":[{{"role":"user","content":"{MARKER}"}}]}}"#),
        format!(r#"{{"model":"mock","messages":"{MARKER}"}}"#),
        format!(r#"{{"model":"mock","prompt":1,"{MARKER}":"{MARKER}"}}"#),
        format!(r#"{{"{MARKER}"#),
    ] {
        let lookup = "/admin/index/lookup";
        collected
            .send_request(&router.admin, Method::POST, lookup, &[], &body)
            .await;
    }
    collected
        .send_request(&router.admin, Method::GET, "/admin/index", &[], "")
        .await;
    let files = ["access.jsonl", "decisions.jsonl"].map(|name| router.path(name));
    for (file, lines) in files.iter().zip([3, 4]) {
        let written = || std::fs::read_to_string(file).unwrap_or_default();
        eventually("the lines are there", || async {
            written().lines().count() >= lines
        })
        .await;
        collected.0.push((file.display().to_string(), written()));
    }
    collected
        .send_request(&router.admin, Method::GET, "/metrics", &[], "")
        .await;
    router.stop().await.unwrap();
    let log = LOG.text();
    assert!(log.contains("DEBUG"), "everything was logged");
    // Traces of libraries have the bytes of requests.
    let lines = log.lines().filter(|line| !line.contains("TRACE"));
    let log: String = lines.map(|line| format!("{line}\n")).collect();
    collected.0.push(("the log".into(), log));
    for (whose, text) in &collected.0 {
        let line = text.lines().find(|line| line.contains(MARKER));
        assert_eq!(line, None, "{whose}");
    }
}
