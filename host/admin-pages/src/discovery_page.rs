//! `GET /admin/discovery`: the sources of workers with their states, and the discovered workers that are left out.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use worker_sources::WorkerSources;

use crate::control::Status;
use crate::refusal::only_get;

/// Sources of the page.
#[derive(Debug, Clone)]
pub(crate) struct DiscoveryPage {
    pub(crate) sources: Arc<WorkerSources>,
    pub(crate) status: Status,
}

impl DiscoveryPage {
    pub(crate) fn pages(self) -> Router {
        let show = |State(page): State<Self>| async move {
            let left_out = page.status.config().left_out;
            Json(json!({ "sources": page.sources.report(), "left_out": left_out }))
        };
        Router::new()
            .route("/admin/discovery", get(show).fallback(only_get))
            .with_state(self)
    }
}
