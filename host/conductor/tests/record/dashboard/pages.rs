//! The pages of a router in which everything that the dashboard shows is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use harness::{Fleet, TestRouter, sends_to};
use http::{Method, StatusCode};
use mock_engine::{RequestFault, Times};
use serde_json::{Value, json};

use crate::fast_fleet;
use crate::simulations::with_traffic;

const KEY: &str = "key";
/// The first route has a canary that always fails, the second one a pipeline with a shadow.
const ROUTES: &str = r#"
[policies.mixed.pipeline]
filters = [{ feature = "load.requests", at-most = 64 }]
scorers = [{ policy = "tier-weight", weight = 2 }, { feature = "load.requests", weight = -1 }]

[[routes]]
match.path = "/v1/completions"
pool = "chat"
policy = "round-robin"
split = { round-robin = 50, last = 50 }
canary = { consecutive-failures = 0, least = 16 }

[[routes]]
pool = "chat"
policy = "mixed"
shadow = ["last"]
shadow-sample = 1.0
"#;

/// Pages by name. Pages whose content changes are lists of what they had.
pub(super) type Pages = BTreeMap<&'static str, Value>;

/// Router of the pages.
struct Site {
    router: TestRouter,
    pages: Pages,
}

/// Calls every page that the dashboard reads.
pub(super) async fn recorded() -> Pages {
    let fleet = fast_fleet().await;
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site {
        router: router(&fleet, folder.path()).await,
        pages: Pages::new(),
    };
    // Before the requests, the page lists the missing evidence.
    let first = site.router.admin("/admin/trials").await.unwrap();
    site.requests(&fleet).await;
    site.policies().await;
    let trials = site.router.admin("/admin/trials").await.unwrap();
    site.pages.insert("trials", json!([first, trials]));
    site.fleet().await;
    site.configuration().await;
    let mut pages = site.pages;
    simulations(&mut pages, &fleet, folder.path()).await;
    pages
}

/// Returns a prompt of several cache blocks.
fn prompt() -> String {
    (0..60).map(|word| format!("word{word} ")).collect()
}

async fn router(fleet: &Fleet, folder: &Path) -> TestRouter {
    let key = folder.join("admin.key");
    fs::write(&key, KEY).unwrap();
    let last = folder.join("last.wasm");
    fs::write(&last, sends_to(2, 0).unwrap()).unwrap();
    let toml = format!(
        "admin-api-key = {{ file = {key:?} }}\nattempts = 1\n[record]\ncolumns = \"all\"\nexplain-sample = 1.0\n\
         [pools.chat.health]\nfailure-min-requests = 0\n[policies.last]\npath = {last:?}\n{}{ROUTES}",
        fleet.workers_toml()
    );
    TestRouter::start(&toml).await.unwrap()
}

impl Site {
    /// Sends a request to a page with the key, and returns status and content.
    async fn sent(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> (StatusCode, Value) {
        let headers = [&[("x-api-key", KEY)], headers].concat();
        let sent = self.router.admin.stream(method, path, &headers, body).await;
        let answer = sent.unwrap().whole().await.unwrap();
        (answer.status, answer.json().unwrap())
    }

    /// Records the page `name`, which is the answer to a body.
    async fn record(&mut self, name: &'static str, method: Method, path: &str, body: &Value) {
        let headers = [("content-type", "application/json")];
        let body = Bytes::from(body.to_string());
        let (status, page) = self.sent(method, path, &headers, body).await;
        assert!(status.is_success(), "{path}: {status} {page}");
        self.pages.insert(name, page);
    }

    async fn get(&mut self, name: &'static str, path: &str) {
        let (status, page) = self.sent(Method::GET, path, &[], Bytes::new()).await;
        assert_eq!(status, StatusCode::OK, "{path}: {page}");
        self.pages.insert(name, page);
    }

    /// Sends requests until the canary of the first route is stopped, and the shadow of the second one disagreed.
    async fn requests(&mut self, fleet: &Fleet) {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        let fault = RequestFault::Status {
            status,
            retry_after: None,
        };
        let faults = fleet.engines[2].faults();
        faults.on_requests(fault, Times::UntilCleared);
        for session in 0..200 {
            self.complete(session).await;
            let trials = self.router.admin("/admin/trials").await.unwrap();
            let arms = trials["trials"][0]["arms"].as_array().unwrap();
            if arms.iter().any(|arm| arm["state"] == "stopped") {
                break;
            }
        }
        faults.clear();
        let id = self.chat_until_disagreed().await;
        let ended = |page: &Value| !page["requests"][0]["outcome"].is_null();
        self.router
            .admin_shows("/admin/requests", "the requests have ended", ended)
            .await;
        self.get("requests", "/admin/requests").await;
        self.get("explained", &format!("/admin/explain/{id}")).await;
        // A call of a pipeline is not repeated, but those of the other route are.
        let rows = self.pages["requests"]["requests"].as_array().unwrap();
        let other = rows.iter().find(|row| row["policy"] == "round-robin").unwrap();
        let path = format!("/admin/explain/{}/replay", other["id"].as_str().unwrap());
        let policy = json!({ "policy": "last" });
        self.record("replay", Method::POST, &path, &policy).await;
        let lookup = json!({ "model": "mock", "pool": "chat", "prompt": prompt() });
        self.record("lookup", Method::POST, "/admin/index/lookup", &lookup)
            .await;
        self.router
            .admin_shows("/admin/index", "a hot prefix", |page| {
                page["hottest"][0].is_object()
            })
            .await;
        self.get("index", "/admin/index").await;
    }

    /// Sends chats until the shadow disagreed on one, and returns the id of the last.
    async fn chat_until_disagreed(&self) -> String {
        let client = &self.router.client;
        for number in 0..100_u64 {
            // The prompts differ, so that no worker's cache attracts all of them.
            let messages = json!([{ "role": "user", "content": format!("{number} {}", prompt()) }]);
            let chat = json!({ "model": "mock", "max_tokens": 2, "messages": messages });
            let answer = client.post("/v1/chat/completions", &chat).await.unwrap();
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            // The shadow decides after the answer.
            let has_decided = |trials: &Value| {
                let decisions = trials["shadows"][0]["decisions"].as_object();
                let counts = decisions.into_iter().flatten().map(|(_, count)| count.as_u64());
                let decided: u64 = counts.flatten().sum();
                decided + trials["shadows"][0]["dropped"].as_u64().unwrap_or(0) > number
            };
            let trials = self
                .router
                .admin_shows("/admin/trials", "the shadow has decided", has_decided)
                .await;
            if trials["shadows"][0]["disagreements"][0].is_object() {
                return answer.header("x-request-id").to_owned();
            }
        }
        unreachable!("the shadow agreed a hundred times")
    }

    /// Sends a streamed request of a session. Those of the canary fail.
    async fn complete(&self, session: usize) {
        let body = json!({
            "model": "mock", "prompt": prompt(), "max_tokens": 3, "stream": true,
            "stream_options": { "include_usage": true },
        });
        let session = format!("session-{session}");
        let headers = [
            ("x-session-id", session.as_str()),
            ("content-type", "application/json"),
        ];
        let body = Bytes::from(body.to_string());
        let sent = self
            .router
            .client
            .stream(Method::POST, "/v1/completions", &headers, body);
        sent.await.unwrap().whole().await.unwrap();
    }

    /// Uploads a policy twice, goes back, tries it on the second route, and lays a file beside that is not loaded.
    async fn policies(&mut self) {
        let wasm = [("content-type", "application/wasm")];
        let path = "/admin/policies/mine";
        for version in 1..=2 {
            let component = Bytes::from(sends_to(0, version).unwrap());
            let (status, page) = self.sent(Method::PUT, path, &wasm, component).await;
            assert_eq!(status, StatusCode::OK, "{page}");
            self.pages.insert("uploaded", page);
        }
        let refused = self.sent(Method::PUT, path, &wasm, Bytes::from("garbage")).await;
        assert_eq!(refused.0, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.1);
        self.pages.insert("refused-upload", refused.1);
        let nothing = json!({});
        self.record(
            "rolled-back",
            Method::POST,
            "/admin/policies/mine/rollback",
            &nothing,
        )
        .await;
        let canary = json!({ "route": 2, "percent": 5 });
        self.record("canary", Method::POST, "/admin/policies/mine/canary", &canary)
            .await;
        fs::write(self.router.path("policies/no name.wasm"), "").unwrap();
        self.router
            .admin_shows("/admin/policies", "a file is not loaded", |page| {
                page["ignored"][0].is_object()
            })
            .await;
        self.get("policies", "/admin/policies").await;
    }

    /// Records the pages about the fleet, and the first event of each topic.
    async fn fleet(&mut self) {
        let added = json!({ "instance": "10.0.0.9:8000", "type": "mixed", "pool": "chat" });
        self.record("added", Method::POST, "/instances/add", &added).await;
        self.router
            .admin_shows("/admin/history", "a sample", |page| {
                page["at"].as_array().is_some_and(|at| !at.is_empty())
            })
            .await;
        for (name, path) in [
            ("history", "/admin/history"),
            ("status", "/status"),
            ("me", "/admin/me"),
            ("config", "/admin/config"),
        ] {
            self.get(name, path).await;
        }
        let path = "/admin/stream?topics=fleet,requests,changes";
        let sent = self
            .router
            .admin
            .stream(Method::GET, path, &[("x-api-key", KEY)], Bytes::new());
        let mut stream = sent.await.unwrap();
        let mut text = String::new();
        let topics = ["event: fleet", "event: requests", "event: changes"];
        // The events end at an empty line.
        while !(topics.iter().all(|topic| text.contains(topic)) && text.ends_with("\n\n")) {
            let chunk = stream.chunk().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
        self.pages.insert("stream", events.collect());
    }

    /// Edits the configuration, and breaks it.
    async fn configuration(&mut self) {
        self.get("file", "/admin/config/file").await;
        let file = &self.pages["file"];
        let [text, sha256] = ["text", "sha256"].map(|key| file[key].as_str().unwrap().to_owned());
        let edited = text.replace("explain-sample = 1.0", "explain-sample = 0.5");
        let check = "/admin/config/check";
        self.record("check", Method::POST, check, &json!({ "text": edited }))
            .await;
        let broken = json!({ "text": format!("{text}\nno-such-key = 1\n") });
        self.record("refused-check", Method::POST, check, &broken).await;
        let headers = [("content-type", "application/json"), ("if-match", &*sha256)];
        let body = Bytes::from(json!({ "text": edited }).to_string());
        let (status, page) = self.sent(Method::PUT, "/admin/config/file", &headers, body).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        self.pages.insert("applied", page);
        self.get("texts", "/admin/config/history").await;
        let id = self.pages["texts"]["generations"][0]["id"].to_string();
        self.get("diff", &format!("/admin/config/history/{id}/diff"))
            .await;
    }
}

/// Records a simulation, which needs the program and recorded traffic.
async fn simulations(pages: &mut Pages, fleet: &Fleet, folder: &Path) {
    let binary = with_traffic(fleet, folder).await;
    let body = json!({ "policies": ["cache-aware", "other"], "rate": 2.0 });
    let started = binary.admin.post("/admin/simulations", &body).await.unwrap();
    let started = started.json().unwrap();
    let done = binary.ended(started["id"].as_str().unwrap()).await;
    assert_eq!(done["state"], "done", "{done}");
    let list = binary.admin.get("/admin/simulations").await.unwrap();
    pages.insert("simulations", list.json().unwrap());
    pages.insert("simulation", done);
}
