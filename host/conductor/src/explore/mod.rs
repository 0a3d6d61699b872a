//! Admin pages that explore what the router has: the prefix index, and prompts in it. They are on the operators'
//! listener only.

mod index;
mod lookup;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use bytes::Bytes;
use kv_plane::IndexReporter;
use proxy::{Proxy, SnapshotCell};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::admin_access::AdminKey;
use crate::refusal::Refusal;

/// Lookups at a time.
const LOOKUPS: usize = 4;

/// Sources of the pages.
#[derive(Debug, Clone)]
pub(crate) struct ExplorePages {
    key: AdminKey,
    cell: Arc<SnapshotCell>,
    proxy: Arc<Proxy>,
    index: Arc<IndexReporter>,
    lookups: Arc<Semaphore>,
}

impl ExplorePages {
    pub(crate) fn new(
        key: AdminKey,
        cell: Arc<SnapshotCell>,
        proxy: Arc<Proxy>,
        index: IndexReporter,
    ) -> Self {
        Self {
            key,
            cell,
            proxy,
            index: Arc::new(index),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
        }
    }

    pub(crate) fn pages(self) -> Router {
        index::pages().merge(lookup::pages()).with_state(self)
    }
}

/// Collects a body of at most `limit` bytes.
async fn collect(body: Body, limit: usize) -> Result<Bytes, Refusal> {
    /// Time for a body to arrive.
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
    let collected = tokio::time::timeout(PATIENCE, to_bytes(body, limit)).await;
    let collected = collected.map_err(|_| {
        let message = "the request body did not arrive in time";
        Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message)
    })?;
    collected.map_err(|_| {
        let message = format!("the request body is longer than {limit} bytes, or was broken off");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    })
}

/// Returns the members of a JSON object. The refusal has the place of a mistake, and quotes nothing of the body.
fn object(body: &[u8], example: &str) -> Result<serde_json::Map<String, Value>, Refusal> {
    let why = match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => return Ok(object),
        Ok(_) => "the body is not a JSON object".to_owned(),
        Err(error) => format!(
            "the body cannot be read as JSON at line {}, column {}",
            error.line(),
            error.column()
        ),
    };
    let message = format!("{why}; send for example {example}");
    Err(Refusal::new(StatusCode::BAD_REQUEST, "invalid_json", message))
}

/// Returns the refusal of an invalid member of the body.
fn invalid(param: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "parameter_invalid", message).of(param)
}
