//! `GET /admin/stream`, `GET /admin/history` and `GET /admin/changes`: what `live-updates` has, over HTTP.

use std::sync::Arc;

use admin_views::{QueryError, Topic, changes_limit};
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use live_updates::{ChangeLog, LiveHub, RefusedStream};
use proxy::LongResponse;
use serde_json::json;

use crate::access::AdminKey;
use crate::refusal::{Refusal, only_get};

/// The pages.
#[derive(Debug, Clone)]
pub(crate) struct LivePages {
    pub(crate) hub: Arc<LiveHub>,
    pub(crate) changes: ChangeLog,
    pub(crate) key: AdminKey,
}

impl LivePages {
    pub(crate) fn pages(self) -> Router {
        let stream = |State(pages): State<Self>, RawQuery(query)| async move {
            shown(pages.stream(&query.unwrap_or_default()))
        };
        let history = |State(pages): State<Self>| async move { shown(pages.history().await) };
        let changes = |State(pages): State<Self>, RawQuery(query)| async move {
            shown(pages.changes(&query.unwrap_or_default()))
        };
        Router::new()
            .route("/admin/stream", get(stream).fallback(only_get))
            .route("/admin/history", get(history).fallback(only_get))
            .route("/admin/changes", get(changes).fallback(only_get))
            .with_state(self)
    }

    fn stream(&self, query: &str) -> Result<Response<Body>, Refusal> {
        let topics = Topic::parse(query).map_err(|error| invalid(&error))?;
        let viewer = self.hub.viewer(topics).map_err(|refused| match refused {
            RefusedStream::Stopping => Refusal::busy(),
            RefusedStream::TooMany => {
                let message = refused.to_string();
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", message)
            }
        })?;
        let (key, rules) = (self.key.clone(), self.key.revision());
        // A viewer under former rules connects again, and is checked again.
        let chunks = viewer.into_stream(move || key.revision() == rules);
        let mut response = Response::new(Body::from_stream(chunks));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response.extensions_mut().insert(LongResponse);
        Ok(response)
    }

    async fn history(&self) -> Result<Response<Body>, Refusal> {
        let json = self.hub.history_json().await.ok_or_else(Refusal::busy)?;
        let kind = HeaderValue::from_static("application/json");
        let mut response = Response::new(Body::from(json));
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(response)
    }

    fn changes(&self, query: &str) -> Result<Response<Body>, Refusal> {
        let limit = changes_limit(query).map_err(|error| invalid(&error))?;
        Ok(Json(json!({ "changes": self.changes.latest(limit) })).into_response())
    }
}

fn shown(page: Result<Response<Body>, Refusal>) -> Response<Body> {
    page.unwrap_or_else(Refusal::into_response)
}

fn invalid(error: &QueryError) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", error.to_string())
}
