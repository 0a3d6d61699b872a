//! `GET /admin/replicas`: the routers of the fleet.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use replica_plane::{ReplicaReport, ReplicaReports};
use serde::Serialize;

use crate::refusal::only_get;

/// The page.
#[derive(Debug, Serialize)]
struct ReplicaPage {
    /// Set if the configuration of the start has `[replicas]`.
    sharing: bool,
    /// The fleet; `None` while nothing is known.
    #[serde(flatten)]
    report: Option<ReplicaReport>,
}

/// Returns the page `/admin/replicas`. Without reports, the router serves alone.
pub(crate) fn pages(reports: Option<ReplicaReports>) -> Router {
    let show = |State(reports): State<Option<ReplicaReports>>| async move {
        Json(ReplicaPage {
            sharing: reports.is_some(),
            report: reports.and_then(|reports| reports.get()),
        })
    };
    Router::new()
        .route("/admin/replicas", get(show).fallback(only_get))
        .with_state(reports)
}
