//! Why this worker: `GET /admin/explain/REQUEST-ID` of a running router, and `conductor explain`.

mod page;
mod pipeline;
mod text;

use std::sync::Arc;

use anyhow::Result;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Method, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use proxy::record::Recorder;

use self::page::ExplainPage;
use crate::cli::ExplainArgs;
use crate::exit::Exit;
use crate::policy_remote;
use crate::refusal::{Refusal, only_get};

const PAGE: &str = "/admin/explain/";

/// The page, for operators: ids and what policies know of requests are on it.
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
        None => {
            let message = format!(
                "no request `{id}` is kept: the latest `explain` of `[record]` are, where they are of the share `explain-sample` \
                 or came with the header `x-conductor-explain: 1`"
            );
            Refusal::new(StatusCode::NOT_FOUND, "request_not_kept", message).into_response()
        }
    }
}

/// Asks a router why it decided about a request as it did.
///
/// # Errors
/// Where it cannot be asked, or does not know.
pub fn run(args: &ExplainArgs) -> Result<Exit> {
    let path = format!("{PAGE}{}", policy_remote::in_a_path(&args.request));
    let answer = policy_remote::ask(&args.router, Method::GET, &path)?;
    let page: ExplainPage = serde_json::from_value(answer.clone())?;
    policy_remote::print(&args.router, &answer, &page.to_string())
}
