//! `GET /admin/stream`, `GET /admin/history` and `GET /admin/changes`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use admin_views::{QueryError, Topic, changes_limit};
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::stream;
use proxy::LongResponse;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::{LiveHub, LiveUpdate, STREAMS};
use crate::change_log::ChangeLog;
use crate::refusal::{Refusal, only_get};

/// Longest silence of a stream.
const SILENCE: Duration = Duration::from_secs(15);
/// Start of a stream: pause before the client reconnects, in milliseconds.
const START: Bytes = Bytes::from_static(b"retry: 2000\n\n");
/// Comment that ends a silence.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// The pages.
#[derive(Debug, Clone)]
pub(crate) struct LivePages {
    pub(crate) hub: Arc<LiveHub>,
    pub(crate) changes: ChangeLog,
}

impl LivePages {
    pub(crate) fn pages(self) -> Router {
        let stream = |State(pages): State<Self>, RawQuery(query)| async move {
            pages.stream(&query.unwrap_or_default())
        };
        let history = |State(pages): State<Self>| async move { pages.history() };
        let changes = |State(pages): State<Self>, RawQuery(query)| async move {
            pages.changes(&query.unwrap_or_default())
        };
        Router::new()
            .route("/admin/stream", get(stream).fallback(only_get))
            .route("/admin/history", get(history).fallback(only_get))
            .route("/admin/changes", get(changes).fallback(only_get))
            .with_state(self)
    }

    fn history(&self) -> Response<Body> {
        Json(self.hub.history().page()).into_response()
    }

    fn changes(&self, query: &str) -> Response<Body> {
        match changes_limit(query) {
            Ok(limit) => Json(json!({ "changes": self.changes.latest(limit) })).into_response(),
            Err(error) => invalid(&error).into_response(),
        }
    }

    fn stream(&self, query: &str) -> Response<Body> {
        match self.viewer(query) {
            Ok(viewer) => viewer.respond(),
            Err(refusal) => refusal.into_response(),
        }
    }

    fn viewer(&self, query: &str) -> Result<Viewer, Refusal> {
        let topics = Topic::parse(query).map_err(|error| invalid(&error))?;
        if self.hub.shutdown.is_cancelled() {
            return Err(Refusal::busy());
        }
        let seat = Arc::clone(&self.hub.streams).try_acquire_owned();
        let seat = seat.map_err(|_| {
            let message = format!("there are {STREAMS} streams already: close one, or try again");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", message)
        })?;
        let updates = self.hub.updates.subscribe();
        self.hub.want_full();
        Ok(Viewer {
            hub: Arc::clone(&self.hub),
            topics,
            updates,
            pending: VecDeque::from([START]),
            has_full: false,
            _seat: seat,
        })
    }
}

fn invalid(error: &QueryError) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", error.to_string())
}

/// Viewer of a stream. It keeps its seat until it is dropped.
struct Viewer {
    hub: Arc<LiveHub>,
    topics: Vec<Topic>,
    updates: Receiver<Arc<LiveUpdate>>,
    pending: VecDeque<Bytes>,
    /// Set once the viewer has got full events.
    has_full: bool,
    _seat: OwnedSemaphorePermit,
}

impl Viewer {
    fn respond(self) -> Response<Body> {
        let chunks = stream::unfold(self, |mut viewer| async move {
            let chunk = viewer.next().await?;
            Some((Ok::<_, Infallible>(chunk), viewer))
        });
        let mut response = Response::new(Body::from_stream(chunks));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response.extensions_mut().insert(LongResponse);
        response
    }

    /// Returns the next chunk, or `None` when the router begins to stop.
    async fn next(&mut self) -> Option<Bytes> {
        let hub = Arc::clone(&self.hub);
        loop {
            if hub.shutdown.is_cancelled() {
                return None;
            }
            if let Some(chunk) = self.pending.pop_front() {
                return Some(chunk);
            }
            let update = tokio::select! {
                () = hub.shutdown.cancelled() => return None,
                update = timeout(SILENCE, self.updates.recv()) => update,
            };
            match update {
                Err(_) => return Some(COMMENT),
                Ok(Ok(update)) => self.take(&update),
                Ok(Err(RecvError::Lagged(_))) => {
                    self.has_full = false;
                    hub.want_full();
                }
                Ok(Err(RecvError::Closed)) => return None,
            }
        }
    }

    /// Queues the events of an update. Until the full ones have come, others are left out.
    fn take(&mut self, update: &LiveUpdate) {
        let events = match &update.full {
            Some(full) if !self.has_full => full,
            _ if !self.has_full => return,
            _ => &update.part,
        };
        self.has_full = true;
        let topics = self.topics.iter();
        self.pending
            .extend(topics.filter_map(|topic| events.of(*topic)).cloned());
    }
}
