//! Tests of the live updates over the parts of a router.

use std::sync::Arc;

use admin_views::Topic;
use decision_log::Recorder;
use live_updates::{ChangeLog, LiveHub, LiveSources, RefusedStream, Sampler};
use local_files::ConfigSource;
use prometheus_client::registry::Registry;
use proxy::{ProxyMetrics, SnapshotCell};
use runtime_overrides::Overlays;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Caches;
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
        sources: &worker_sources::WorkerSources::new(&mut registry),
        max_connections: config.server.max_connections,
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
