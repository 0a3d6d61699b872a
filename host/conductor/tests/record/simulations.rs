//! Simulations that a router runs over HTTP, on the traffic that it recorded.

use std::fs;
use std::path::Path;

use harness::{Client, Fleet, RouterProcess, eventually, eventually_ok};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{fast_fleet, written};

/// Requests of the recording.
const REQUESTS: usize = 60;

/// Process of a router, with the pages of its simulations.
pub(super) struct SimulatingRouter {
    _process: RouterProcess,
    pub(super) client: Client,
    pub(super) admin: Client,
}

impl SimulatingRouter {
    async fn start(config: &Path) -> Self {
        let process = RouterProcess::start(env!("CARGO_BIN_EXE_conductor"), config).await;
        let process = process.unwrap();
        Self {
            client: process.client.clone(),
            admin: process.admin.clone().unwrap(),
            _process: process,
        }
    }

    async fn simulate(&self, body: &Value) -> (StatusCode, Value) {
        let answer = self.admin.post("/admin/simulations", body).await.unwrap();
        (answer.status, answer.json().unwrap())
    }

    async fn simulation(&self, id: &str) -> Value {
        let path = format!("/admin/simulations/{id}");
        self.admin.get(&path).await.unwrap().json().unwrap()
    }

    /// Waits for the end of a simulation.
    pub(super) async fn ended(&self, id: &str) -> Value {
        eventually_ok("the simulation has ended", || async {
            let job = self.simulation(id).await;
            if job["state"] == "running" {
                Err(job.to_string())
            } else {
                Ok(job)
            }
        })
        .await
    }

    async fn cancel(&self, id: &str) -> StatusCode {
        let path = format!("/admin/simulations/{id}");
        let sent = self.admin.stream(Method::DELETE, &path, &[], "".into()).await;
        sent.unwrap().whole().await.unwrap().status
    }
}

/// Starts the program with a recorded route and a second policy, and sends requests until they are in its log.
pub(super) async fn with_traffic(fleet: &Fleet, folder: &Path) -> SimulatingRouter {
    let config = folder.join("simulated.toml");
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
         [record]\nfile = \"decisions.jsonl\"\nsample = 1.0\nprompt-blocks = 16\n[policies.other]\nbuiltin = \"round-robin\"\n{}\
         [[routes]]\npool = \"chat\"\npolicy = \"cache-aware\"\n",
        fleet.workers_toml()
    );
    fs::write(&config, toml).unwrap();
    let binary = SimulatingRouter::start(&config).await;
    harness::workers_checked(&binary.admin).await;
    for number in 0..12_u32 {
        let prompt: Vec<u32> = (0..200).map(|at| 1_000 + at % (50 + number % 4)).collect();
        let body = json!({
            "model": "mock", "prompt": prompt, "max_tokens": 4, "stream": true,
            "stream_options": { "include_usage": true },
        });
        let answer = binary.client.post("/v1/completions", &body).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    written(&folder.join("decisions.jsonl"), 12).await;
    binary
}

/// Sends conversations of several lengths, streamed with their usage.
async fn traffic(client: &Client) {
    for number in 0..REQUESTS as u32 {
        let prompt: Vec<u32> = (0..200 + number * 17 % 900)
            .map(|at| 1_000 + at % (50 + number % 4))
            .collect();
        let body = json!({
            "model": "mock", "prompt": prompt, "max_tokens": 4 + number % 8,
            "stream": true, "stream_options": { "include_usage": true },
        });
        let answer = client.post("/v1/completions", &body).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_simulates_two_policies_on_its_own_traffic() {
    let fleet = fast_fleet().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("conductor.toml");
    let component = folder.path().join("mine.wasm");
    fs::write(
        &component,
        conductor::builtin::find("load-weighted").unwrap().bytes,
    )
    .unwrap();
    let toml = format!(
        "[server]\npolicy-state = \"state\"\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
         [record]\nfile = \"decisions.jsonl\"\nsample = 1.0\nprompt-blocks = 16\n\
         [policies.mine]\npath = \"mine.wasm\"\n{}[[routes]]\npool = \"chat\"\npolicy = \"cache-aware\"\n",
        fleet.workers_toml()
    );
    fs::write(&config, toml).unwrap();
    let router = SimulatingRouter::start(&config).await;
    eventually("the workers serve", || async {
        let body = json!({ "model": "mock", "prompt": [1, 2, 3], "max_tokens": 1 });
        router.client.post("/v1/completions", &body).await.unwrap().status == 200
    })
    .await;
    traffic(&router.client).await;
    let log = folder.path().join("decisions.jsonl");
    eventually("the log has every request", || async {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.matches("{\"outcome\"").count() > REQUESTS
    })
    .await;

    let compared = json!({ "policies": ["cache-aware", "mine"] });
    let (_, first) = router.simulate(&compared).await;
    let done = router.ended(first["id"].as_str().unwrap()).await;
    assert_eq!(done["state"], "done", "{done}");
    // The active version is simulated, whatever its file has by now.
    fs::write(&component, "no component").unwrap();
    let (status, started) = router.simulate(&compared).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{started}");
    let id = started["id"].as_str().unwrap();
    let done = router.ended(id).await;
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(done["progress"], 1.0);
    assert!(done["requests"].as_u64() > Some(REQUESTS as u64 / 2), "{done}");
    let rows = done["result"]["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["cache-aware", "mine"], "{done}");

    for (body, status, code) in [
        (json!({}), 400, "parameter_invalid"),
        (
            json!({ "policies": ["cache-aware"], "rate": 0 }),
            400,
            "parameter_invalid",
        ),
        (json!({ "policies": ["none"] }), 404, "policy_not_found"),
    ] {
        let (found, refused) = router.simulate(&body).await;
        assert_eq!(found.as_u16(), status, "{refused}");
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    let list = router
        .admin
        .get("/admin/simulations")
        .await
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(list["simulations"][0]["id"], id, "{list}");

    // The log may have the policy itself.
    for alone in ["cache-aware", "mine"] {
        let (_, started) = router.simulate(&json!({ "policies": [alone] })).await;
        let done = router.ended(started["id"].as_str().unwrap()).await;
        assert_eq!(done["state"], "done", "{alone}: {done}");
    }
    assert_eq!(router.cancel(id).await, StatusCode::OK);
    assert_eq!(router.cancel(id).await, StatusCode::NOT_FOUND);
}
