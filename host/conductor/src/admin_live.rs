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

use crate::admin_access::AdminKey;
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

#[cfg(test)]
mod tests {
    use decision_log::Recorder;
    use live_updates::{LiveSources, Sampler};
    use local_files::ConfigSource;
    use prometheus_client::registry::Registry;
    use proxy::{ProxyMetrics, SnapshotCell};
    use runtime_overrides::Overlays;
    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::app::Caches;
    use crate::reload::{ActiveConfig, Planner, Steps, read};

    const CONFIG: &str =
        "[[pools.a.workers]]\nurl = \"http://a:1\"\n[[routes]]\npool = \"a\"\npolicy = \"round-robin\"\n";

    /// Returns a hub and the sampler of a router without pools.
    fn live() -> (Arc<LiveHub>, Sampler) {
        let source = ConfigSource::Text(CONFIG.to_owned());
        let config = read(&source, CONFIG).expect("valid").config;
        let idle = ActiveConfig::idle(&config, Overlays::default());
        let mut registry = Registry::default();
        let metrics = ProxyMetrics::new(&mut registry);
        let caches = Caches::start(&config, &mut registry).unwrap();
        let recorder = Recorder::new(&mut registry);
        let planner = Planner {
            steps: &Steps::default(),
            source: &source,
            metrics: &metrics,
            recorder: &recorder,
            exporter: &trace_export::TraceExporter::new(&mut registry),
            discovery: &caches.plane.discovery,
        };
        let cell = SnapshotCell::new(planner.plan_idle(&idle).unwrap(), &metrics);
        let sources = LiveSources {
            cell: Arc::new(cell),
            feeds: Arc::clone(&caches.plane.feeds),
            index: Arc::clone(&caches.plane.index),
            recorder,
            changes: ChangeLog::default(),
        };
        let hub = LiveHub::new(CancellationToken::new());
        (Arc::clone(&hub), Sampler::new(hub, sources))
    }

    #[tokio::test]
    async fn without_viewers_a_second_is_kept_and_no_event_is_made() {
        let (hub, mut sampler) = live();
        sampler.sample();
        assert!(!sampler.is_shown());
        let page: Value = serde_json::from_slice(&hub.history_json().await.unwrap()).unwrap();
        assert_eq!(page["at"].as_array().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_new_viewer_gets_full_events_and_then_differences_only() {
        let (hub, mut sampler) = live();
        let mut viewer = hub.viewer(Topic::ALL.to_vec()).unwrap();
        let mut next = async || String::from_utf8(viewer.next().await.unwrap().to_vec()).unwrap();
        assert_eq!(next().await, "retry: 2000\n\n");
        sampler.sample();
        for topic in Topic::ALL {
            let event = next().await;
            assert!(
                event.starts_with(&format!("event: {}\ndata: {{", topic.as_str())),
                "{event}"
            );
        }
        sampler.sample();
        sampler.sample();
        for _ in 0..2 {
            let event = next().await;
            assert!(
                event.contains("event: fleet") && event.contains("\"full\":false"),
                "{event}"
            );
        }
        assert!(sampler.is_shown());
        drop(viewer);
        sampler.sample();
        assert!(!sampler.is_shown(), "the last viewer has left");
    }

    #[tokio::test]
    async fn streams_are_limited_and_end_when_the_router_stops() {
        let stop = CancellationToken::new();
        let hub = LiveHub::new(stop.clone());
        let mut viewers: Vec<_> = (0..live_updates::STREAMS)
            .map(|_| hub.viewer(vec![Topic::Fleet]).unwrap())
            .collect();
        assert_eq!(hub.viewer(vec![]).unwrap_err(), RefusedStream::TooMany);
        viewers.pop();
        assert!(hub.viewer(vec![]).is_ok());
        stop.cancel();
        assert_eq!(viewers[0].next().await, None);
        assert_eq!(hub.viewer(vec![]).unwrap_err(), RefusedStream::Stopping);
    }
}
