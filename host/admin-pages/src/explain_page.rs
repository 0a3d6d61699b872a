//! Admin page that explains a request: `GET /admin/explain/REQUEST-ID`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use conductor_tools::explain::{ExplainPage, PAGE};
use decision_log::Recorder;

use crate::refusal::{Refusal, only_get};

/// Returns the page. It is for operators: ids, and what policies know of requests, are on it.
pub(crate) fn pages(recorder: Arc<Recorder>) -> Router {
    let show =
        |State(recorder): State<Arc<Recorder>>, Path(id): Path<String>| async move { show(&recorder, &id) };
    Router::new()
        .route(&format!("{PAGE}{{*id}}"), get(show).fallback(only_get))
        .with_state(recorder)
}

fn show(recorder: &Recorder, id: &str) -> Response<Body> {
    match recorder.explain(id) {
        Some(explained) => Json(ExplainPage::of(&explained)).into_response(),
        None => not_kept(id).into_response(),
    }
}

/// Returns the refusal of a request that is not kept.
pub(crate) fn not_kept(id: &str) -> Refusal {
    let message = format!(
        "no request `{id}` is kept: the latest `explain` of `[record]` are, where they are of the share `explain-sample` \
                 or came with the header `x-conductor-explain: 1`"
    );
    Refusal::new(StatusCode::NOT_FOUND, "request_not_kept", message)
}
