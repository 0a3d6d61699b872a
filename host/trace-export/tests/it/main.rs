//! Tests of the exporter against a scripted collector.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod collector;

use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderValue};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use request_traces::{
    ClockReading, EndKind, QueueLimits, QueuedTrace, RequestEnd, RequestFacts, RequestTrace, SpanId, TraceId,
    TraceIdentity,
};
use trace_export::{CollectorSpec, ExportSpec, TraceExporter};

use crate::collector::ScriptedCollector;

fn trace(path: &str) -> QueuedTrace {
    let now = Instant::now();
    let identity = TraceIdentity {
        trace: TraceId::new([1; 16]).unwrap(),
        span: SpanId::new([1; 8]).unwrap(),
        parent: None,
        is_sampled: true,
    };
    let clock = ClockReading {
        instant: now,
        system: SystemTime::now(),
    };
    let facts = RequestFacts {
        request_id: "r".into(),
        ..RequestFacts::of_arrival(now, "POST", path.into())
    };
    let end = RequestEnd {
        at: now,
        outcome: "complete",
        kind: EndKind::Complete,
        status: None,
        error: None,
        ttft: None,
    };
    QueuedTrace::Request(Box::new(RequestTrace::begin(identity, clock, facts, end)))
}

fn spec(endpoint: String, batch: usize) -> ExportSpec {
    let mut headers = HeaderMap::new();
    headers.insert("x-key", HeaderValue::from_static("secret"));
    ExportSpec {
        collector: CollectorSpec {
            endpoint: endpoint.into(),
            headers,
            gzip: true,
            resource: vec![("zone".into(), "a".into())],
        },
        limits: QueueLimits {
            traces: 4,
            batch,
            every: Duration::from_secs(3_600),
        },
    }
}

/// Returns the number of traces with that result.
fn count(registry: &Registry, result: &str) -> u64 {
    let mut page = String::new();
    encode(&mut page, registry).unwrap();
    let name = format!("conductor_traces_total{{result=\"{result}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
    line.parse().unwrap()
}

#[test]
fn a_batch_reaches_the_collector_with_its_headers_and_resource() {
    let collector = ScriptedCollector::start(&[200]);
    let mut registry = Registry::default();
    let exporter = TraceExporter::new(&mut registry);
    exporter.apply(exporter.plan(Some(spec(collector.url(), 2))).unwrap());
    assert!(exporter.queue().push(trace("/a")) && exporter.queue().push(trace("/b")));
    let received = collector.next();
    exporter.close();
    assert!(received.head.contains("x-key: secret"), "{}", received.head);
    assert!(received.head.starts_with("POST /v1/traces "), "{}", received.head);
    let process = &received.request.resource_spans[0];
    let resource = process.resource.as_ref().unwrap();
    assert!(
        resource
            .attributes
            .iter()
            .any(|attribute| attribute.key == "zone")
    );
    let names: Vec<_> = process.scope_spans[0]
        .spans
        .iter()
        .map(|span| &*span.name)
        .collect();
    assert_eq!(names, ["POST /a", "POST /b"]);
    assert_eq!(count(&registry, "sent"), 2);
}

#[test]
fn the_last_traces_are_sent_at_shutdown() {
    let collector = ScriptedCollector::start(&[200]);
    let mut registry = Registry::default();
    let exporter = TraceExporter::new(&mut registry);
    exporter.apply(exporter.plan(Some(spec(collector.url(), 100))).unwrap());
    assert!(exporter.queue().push(trace("/a")));
    exporter.close();
    assert_eq!(count(&registry, "sent"), 1);
}

#[test]
fn an_overloaded_collector_gets_the_batch_again() {
    let collector = ScriptedCollector::start(&[503, 200]);
    let mut registry = Registry::default();
    let exporter = TraceExporter::new(&mut registry);
    exporter.apply(exporter.plan(Some(spec(collector.url(), 1))).unwrap());
    assert!(exporter.queue().push(trace("/a")));
    let (first, second) = (collector.next(), collector.next());
    assert_eq!(first.request, second.request);
    exporter.close();
    assert_eq!((count(&registry, "sent"), count(&registry, "failed")), (1, 0));
}

#[test]
fn refused_traces_are_dropped_at_once() {
    let collector = ScriptedCollector::start(&[400, 200]);
    let mut registry = Registry::default();
    let exporter = TraceExporter::new(&mut registry);
    exporter.apply(exporter.plan(Some(spec(collector.url(), 1))).unwrap());
    assert!(exporter.queue().push(trace("/a")));
    let _ = collector.next();
    assert!(exporter.queue().push(trace("/b")));
    let second = collector.next();
    exporter.close();
    let spans = &second.request.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans[0].name, "POST /b");
    assert_eq!((count(&registry, "refused"), count(&registry, "sent")), (1, 1));
}

#[test]
fn a_shutdown_does_not_wait_for_a_collector_that_is_gone() {
    let url = ScriptedCollector::url_of_none();
    let mut registry = Registry::default();
    let exporter = TraceExporter::new(&mut registry);
    exporter.apply(exporter.plan(Some(spec(url, 1))).unwrap());
    for path in ["/a", "/b", "/c", "/d", "/e", "/f"] {
        exporter.queue().push(trace(path));
    }
    exporter.close();
    let lost = count(&registry, "failed") + count(&registry, "dropped");
    assert_eq!(lost, 6, "each one is counted");
}

#[test]
fn a_removed_collector_ends_the_export_and_another_one_takes_over() {
    let (first, second) = (ScriptedCollector::start(&[200]), ScriptedCollector::start(&[200]));
    let mut registry = Registry::default();
    let exporter = TraceExporter::new(&mut registry);
    exporter.apply(exporter.plan(Some(spec(first.url(), 1))).unwrap());
    assert!(exporter.queue().push(trace("/a")));
    let _ = first.next();
    exporter.apply(exporter.plan(None).unwrap());
    assert!(!exporter.queue().push(trace("/b")));
    exporter.apply(exporter.plan(Some(spec(second.url(), 1))).unwrap());
    assert!(exporter.queue().push(trace("/c")));
    let received = second.next();
    exporter.close();
    assert_eq!(
        received.request.resource_spans[0].scope_spans[0].spans[0].name,
        "POST /c"
    );
}
