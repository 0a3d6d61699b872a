//! `GET /admin/replicas`: the routers of the fleet, and the decisions that they agree on.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use replica_plane::{AgreedHandle, AgreementReport, ReplicaReport, ReplicaReports};
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
    /// Decisions of the fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    agreement: Option<AgreementReport>,
}

/// Returns the page `/admin/replicas`. Without reports, the router serves alone.
pub(crate) fn pages(reports: Option<(ReplicaReports, AgreedHandle)>) -> Router {
    let show = |State(reports): State<Option<(ReplicaReports, AgreedHandle)>>| async move {
        let report = reports.as_ref().and_then(|(reports, _)| reports.get());
        let others = report.as_ref().map_or(&[][..], |report| &report.others);
        let is_live = |router: &str| others.iter().any(|other| other.router == router);
        Json(ReplicaPage {
            sharing: reports.is_some(),
            agreement: reports
                .as_ref()
                .map(|(_, agreed)| AgreementReport::of(agreed, is_live)),
            report,
        })
    };
    Router::new()
        .route("/admin/replicas", get(show).fallback(only_get))
        .with_state(reports)
}
