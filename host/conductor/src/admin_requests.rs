//! `GET /admin/requests`: the recorded requests, filtered.

use std::sync::Arc;

use admin_views::RequestFilter;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use decision_log::Recorder;

use crate::refusal::{Refusal, only_get};

/// Most requests that a query looks at.
const MOST: usize = 10_000;

/// Returns the page.
pub(crate) fn pages(recorder: Arc<Recorder>) -> Router {
    let show = |State(recorder): State<Arc<Recorder>>, RawQuery(query)| async move {
        show(&recorder, query.as_deref().unwrap_or_default())
    };
    Router::new()
        .route("/admin/requests", get(show).fallback(only_get))
        .with_state(recorder)
}

fn show(recorder: &Recorder, query: &str) -> Response<Body> {
    match RequestFilter::parse(query) {
        Ok(filter) => Json(filter.list(&recorder.latest_traces(MOST), recorder.kept())).into_response(),
        Err(error) => {
            Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", error.to_string()).into_response()
        }
    }
}
