//! `GET /admin/requests`: the recorded requests, filtered.

use std::sync::Arc;

use admin_views::{RequestFilter, RequestList};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use decision_log::Recorder;
use tokio::sync::Semaphore;

use crate::refusal::{Refusal, only_get};

/// Most requests that a query looks at.
const MOST: usize = 10_000;

/// Queries at a time.
const TURNS: usize = 2;

/// The page.
#[derive(Debug, Clone)]
pub(crate) struct RequestPages {
    recorder: Arc<Recorder>,
    turns: Arc<Semaphore>,
}

impl RequestPages {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Self {
        let turns = Arc::new(Semaphore::new(TURNS));
        Self { recorder, turns }
    }

    pub(crate) fn pages(self) -> Router {
        let show = |State(pages): State<Self>, RawQuery(query)| async move {
            match pages.list(&query.unwrap_or_default()).await {
                Ok(list) => Json(list).into_response(),
                Err(refusal) => refusal.into_response(),
            }
        };
        Router::new()
            .route("/admin/requests", get(show).fallback(only_get))
            .with_state(self)
    }

    /// Lists the requests off the threads that serve.
    async fn list(&self, query: &str) -> Result<RequestList, Refusal> {
        let filter = RequestFilter::parse(query)
            .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", error.to_string()))?;
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(|_| Refusal::busy())?;
        let recorder = Arc::clone(&self.recorder);
        let list = move || {
            let list = filter.list(&recorder.latest_traces(MOST), recorder.kept());
            drop(turn);
            list
        };
        let listed = tokio::task::spawn_blocking(list).await;
        listed.map_err(|_| Refusal::busy())
    }
}
