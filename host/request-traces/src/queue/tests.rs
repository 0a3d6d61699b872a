//! Tests of the queue of traces.

use std::time::SystemTime;

use super::*;
use crate::context::{SpanId, TraceId};
use crate::notes::{ClockReading, EndKind, RequestEnd, RequestFacts, TraceIdentity};

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
    let facts = RequestFacts::of_arrival(now, "POST", path.into());
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

fn queue(traces: usize, batch: usize) -> TraceQueue {
    let queue = TraceQueue::default();
    queue.configure(QueueLimits {
        traces,
        batch,
        every: Duration::from_secs(3_600),
    });
    assert!(queue.next().traces.is_empty(), "a change wakes the exporter");
    queue
}

#[test]
fn a_full_queue_takes_no_more() {
    let queue = queue(2, 2);
    assert!(queue.push(trace("/a")) && queue.push(trace("/b")));
    assert!(!queue.push(trace("/c")));
    let batch = queue.next();
    assert_eq!(batch.traces.len(), 2);
    assert_eq!(batch.traces[0].spans()[0].name, "POST /a");
    assert!(queue.push(trace("/d")), "there is room again");
}

#[test]
fn the_memory_of_all_traces_is_limited() {
    let queue = queue(1_000, 1_000);
    let large = "x".repeat(MOST_BYTES / 4);
    let pushed = (0..10).filter(|_| queue.push(trace(&large))).count();
    assert_eq!(pushed, 3);
}

#[test]
fn a_closed_queue_returns_the_rest_and_then_its_end() {
    let queue = queue(10, 2);
    for path in ["/a", "/b", "/c"] {
        assert!(queue.push(trace(path)));
    }
    queue.close();
    assert!(!queue.push(trace("/d")));
    let first = queue.next();
    assert_eq!((first.traces.len(), first.is_last), (2, false));
    let last = queue.next();
    assert_eq!((last.traces.len(), last.is_last), (1, true));
    assert!(queue.closes_within(Duration::from_secs(3_600)));
}

#[test]
fn a_queue_without_limits_takes_nothing() {
    assert!(!TraceQueue::default().push(trace("/a")));
}
