//! Admin pages that explore what the router has: the prefix index, prompts in it, recorded decisions, and uploaded
//! policies. They are on the operators' listener only.

mod index;
mod lookup;
mod replay;
mod simulations;
mod upload;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use bytes::Bytes;
use decision_log::Recorder;
use kv_plane::IndexReporter;
use proxy::{Proxy, SnapshotCell};
use serde_json::Value;
use tokio::sync::Semaphore;

pub(crate) use self::simulations::SimulationPages;
pub(crate) use self::upload::UploadPage;
use crate::admin_access::AdminKey;
use crate::refusal::Refusal;
use crate::status::Status;

/// Lookups at a time.
const LOOKUPS: usize = 4;
/// Replays at a time.
const REPLAYS: usize = 2;

/// The pages, with their sources.
#[derive(Debug, Clone)]
pub(crate) struct ExplorePages {
    pub(crate) key: AdminKey,
    pub(crate) cell: Arc<SnapshotCell>,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) index: Arc<IndexReporter>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) status: Status,
    pub(crate) turns: ExploreTurns,
}

/// Limits of tasks at a time.
#[derive(Debug, Clone)]
pub(crate) struct ExploreTurns {
    lookups: Arc<Semaphore>,
    replays: Arc<Semaphore>,
}

impl Default for ExploreTurns {
    fn default() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            replays: Arc::new(Semaphore::new(REPLAYS)),
        }
    }
}

impl ExplorePages {
    pub(crate) fn pages(self) -> Router {
        index::pages()
            .merge(lookup::pages())
            .merge(replay::pages())
            .with_state(self)
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
