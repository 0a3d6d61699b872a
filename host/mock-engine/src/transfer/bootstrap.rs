//! Bootstrap server of a prefill engine, and a decode engine's queries to it.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::serving::{HttpResult, empty_reply, json_reply};
use crate::transfer::PdDialect;
use crate::transfer::side::Side;

/// Timeout of a bootstrap query, in real time: the server is on this machine.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest directory.
const MAX_DIRECTORY: usize = 1 << 20;

#[derive(Debug, Deserialize)]
struct Entry {
    engine_id: String,
}

/// Answers `GET /query` of mooncake and `GET /health` of sglang.
pub(crate) fn answer(side: &Side, request: &Request<Incoming>) -> HttpResult {
    let is_get = request.method() == Method::GET;
    Ok(match (side.config().dialect, request.uri().path()) {
        (PdDialect::Mooncake, "/query") if is_get => json_reply(StatusCode::OK, &directory(side)),
        (PdDialect::Sglang, "/health") if is_get => empty_reply(StatusCode::OK),
        (PdDialect::Mooncake, "/query") | (PdDialect::Sglang, "/health") => json_reply(
            StatusCode::METHOD_NOT_ALLOWED,
            &json!({"detail": "Method Not Allowed"}),
        ),
        _ => json_reply(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"})),
    })
}

/// Returns the directory as recorded: by data-parallel rank, then tensor-parallel and pipeline-parallel rank.
fn directory(side: &Side) -> Value {
    let address = format!("tcp://127.0.0.1:{}", side.port());
    let entry = |(rank, engine_id): (usize, String)| {
        let entry = json!({"engine_id": engine_id, "worker_addr": {"0": {"0": address}}});
        (rank.to_string(), entry)
    };
    Value::Object(
        side.engine_ids()
            .into_iter()
            .enumerate()
            .map(entry)
            .collect::<Map<_, _>>(),
    )
}

/// Returns `true` if the server at `base` (`http://host:port`) is up and has this engine.
pub(super) async fn knows(base: &str, engine_id: &str) -> bool {
    let Some(directory) = get(&format!("{}/query", base.trim_end_matches('/'))).await else {
        return false;
    };
    let entries: HashMap<String, Entry> = serde_json::from_slice(&directory).unwrap_or_default();
    entries.values().any(|entry| entry.engine_id == engine_id)
}

/// Returns `true` if a server is up at `authority` (`host:port`).
pub(super) async fn is_up(authority: &str) -> bool {
    get(&format!("http://{authority}/health")).await.is_some()
}

/// Returns the body of a successful answer.
async fn get(url: &str) -> Option<Bytes> {
    let url: Uri = url.parse().ok()?;
    let client: Client<HttpConnector, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let read = async {
        let answer = client.get(url).await.ok()?;
        let good = answer.status().is_success();
        let body = Limited::new(answer.into_body(), MAX_DIRECTORY)
            .collect()
            .await
            .ok()?;
        good.then(|| body.to_bytes())
    };
    tokio::time::timeout(ASK_TIMEOUT, read).await.ok()?
}
