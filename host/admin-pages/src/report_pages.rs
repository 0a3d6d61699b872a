//! `GET /admin/config` and `GET /admin/policies`: the reports of the reload thread.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use proxy::SnapshotCell;

use crate::control::Status;
use crate::refusal::only_get;

/// Sources of the pages.
#[derive(Debug, Clone)]
pub(crate) struct ReportPages {
    pub(crate) status: Status,
    pub(crate) cell: Arc<SnapshotCell>,
}

impl ReportPages {
    pub(crate) fn pages(self) -> Router {
        let config = |State(pages): State<Self>| async move { Json(pages.status.config()) };
        let policies = |State(pages): State<Self>| async move {
            Json(
                pages
                    .status
                    .policies()
                    .with_listeners(pages.cell.load().listeners()),
            )
        };
        Router::new()
            .route("/admin/config", get(config).fallback(only_get))
            .route("/admin/policies", get(policies).fallback(only_get))
            .with_state(self)
    }
}
