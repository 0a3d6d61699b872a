//! Engine-compatible pages that describe the router itself: version and load.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use serde_json::json;

use crate::base::reply::{self, Refusal};
use crate::proxy::Proxy;

/// Returns the router's version in the format of an engine.
pub(crate) async fn version() -> Response<Body> {
    let version = json!({ "version": env!("CARGO_PKG_VERSION") });
    page(&version)
}

/// Returns the load: requests at workers and in queues. If the API requires keys, the page requires one too.
pub(crate) async fn load(State(proxy): State<Arc<Proxy>>, mut headers: HeaderMap) -> Response<Body> {
    let snapshot = proxy.snapshots.load();
    if let Err(refusal) = snapshot.clients.identify(&mut headers) {
        return refused(&refusal);
    }
    let report = snapshot.report();
    let mut workers: Vec<_> = report.iter().flat_map(|pool| &pool.workers).collect();
    // A worker of two pools is counted once.
    workers.sort_unstable_by_key(|worker| worker.worker.id());
    workers.dedup_by_key(|worker| worker.worker.id());
    let running: u64 = workers
        .iter()
        .map(|worker| u64::from(worker.worker.load().own().requests))
        .sum();
    let queued: usize = report.iter().map(|pool| pool.queued).sum();
    let in_service = workers.iter().filter(|worker| worker.health.is_in_service());
    page(&json!({
        "server_load": running + queued as u64,
        "running": running,
        "queued": queued,
        "workers": workers.len(),
        "in_service": in_service.count(),
    }))
}

/// Returns a page of JSON.
pub(crate) fn page(content: &serde_json::Value) -> Response<Body> {
    reply::json(StatusCode::OK, content.to_string()).map(Body::from)
}

fn refused(refusal: &Refusal) -> Response<Body> {
    reply::refuse(refusal).map(Body::from)
}
