//! Queries of a decode engine to the bootstrap server of a prefill engine.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;

/// Timeout of a bootstrap query, in real time. The server is on this machine: only a refused or closed connection means
/// that it is down, and a slow answer means a slow machine.
const REQUEST_TIMEOUT: Duration = Duration::from_hours(24);
/// Largest directory.
const MAX_DIRECTORY: usize = 1 << 20;

#[derive(Debug, Deserialize)]
struct Entry {
    engine_id: String,
}

/// Returns `true` if the server at `base` (`http://host:port`) is up and has this engine.
pub(super) async fn has_engine(base: &str, engine_id: &str) -> bool {
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
    tokio::time::timeout(REQUEST_TIMEOUT, read).await.ok()?
}
