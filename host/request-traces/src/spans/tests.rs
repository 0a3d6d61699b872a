//! Tests of the spans of a request.

use std::sync::Arc;
use std::time::SystemTime;

use prost::Message;
use routing::WorkerSpec;

use super::*;
use crate::context::TraceId;
use crate::notes::{
    AttemptTimes, CalledPolicyNote, ClockReading, GivenAnswer, ReadNote, RequestEnd, RequestFacts, RouteNote,
    StageTotals, TraceIdentity,
};
use crate::otlp::{SpanStatus, StatusCode};

fn id(number: u8) -> SpanId {
    SpanId::new([number; 8]).unwrap()
}

fn worker(name: &str) -> Arc<WorkerSpec> {
    Arc::new(WorkerSpec::mixed(name, format!("http://{name}:8000")))
}

fn trace() -> RequestTrace {
    let now = Instant::now();
    let identity = TraceIdentity {
        trace: TraceId::new([9; 16]).unwrap(),
        span: id(1),
        parent: None,
        is_sampled: true,
    };
    let clock = ClockReading {
        instant: now,
        system: SystemTime::now(),
    };
    let facts = RequestFacts {
        operation: Some("chat"),
        request_id: "req-1".into(),
        route: RouteNote {
            number: Some(1),
            pool: Some("main".into()),
            is_explained: true,
        },
        model: Some("m".into()),
        ..RequestFacts::of_arrival(now, "POST", "/v1/chat/completions".into())
    };
    let end = RequestEnd {
        at: now + Duration::from_secs(1),
        outcome: "complete",
        kind: EndKind::Complete,
        status: Some(200),
        error: None,
        ttft: None,
    };
    RequestTrace {
        stages: StageTotals {
            read: Some(Duration::from_millis(5)),
            ..StageTotals::default()
        },
        ..RequestTrace::begin(identity, clock, facts, end)
    }
}

fn attempt(number: u8, leg: LegKind) -> AttemptNote {
    AttemptNote {
        span: id(number),
        worker: worker("w"),
        leg,
        resends: 0,
        times: AttemptTimes::begin(Instant::now()),
        status: None,
        error: None,
    }
}

fn decision(fault: Option<&'static str>) -> DecisionNote {
    let now = Instant::now();
    DecisionNote {
        began: now,
        called: now,
        ended: now,
        policy: CalledPolicyNote {
            name: "cache-aware".into(),
            version: Some("1a2b".into()),
            arm: None,
        },
        phase: "mixed",
        attempt: 0,
        candidates: 4,
        best_tokens: Some(128),
        answer: GivenAnswer {
            verdict: fault.is_none().then_some("route"),
            fault,
            worker: Some(worker("w")),
            ..GivenAnswer::default()
        },
    }
}

fn attribute(span: &Span, key: &str) -> Option<Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.clone()?.value
}

#[test]
fn the_requests_own_span_has_its_stages_and_the_page_that_explains_it() {
    let mut trace = trace();
    trace.facts.request_id = "a/b-1".into();
    let spans = request_spans(&trace);
    let text = |key| attribute(&spans[0], key);
    assert_eq!(text("conductor.explain"), Some("/admin/explain/a%2Fb-1".into()));
    assert_eq!(text("conductor.read_seconds"), Some(0.005.into()));
    assert_eq!(text("conductor.queue_seconds"), None);
    assert_eq!(text("conductor.pool"), Some("main".into()));
}

#[test]
fn waits_have_the_class_and_decisions_the_score() {
    let mut trace = trace();
    let began = trace.facts.arrived;
    trace.queue.push(QueueNote {
        began,
        ended: began + Duration::from_millis(3),
        is_held: false,
        class: Some(-2),
    });
    let mut call = decision(None);
    call.answer.score = Some(0.25);
    trace.decisions.push(call);
    let spans = request_spans(&trace);
    assert_eq!(attribute(&spans[1], "conductor.class"), Some((-2_i64).into()));
    assert_eq!(attribute(&spans[2], "conductor.score"), Some(0.25.into()));
}

fn status(span: &Span) -> Option<StatusCode> {
    span.status.as_ref().map(SpanStatus::code)
}

#[test]
fn every_span_is_a_child_of_the_requests_own_and_has_an_id_of_its_own() {
    let mut trace = trace();
    trace.read = Some(ReadNote {
        ended: trace.facts.arrived + Duration::from_millis(2),
        bytes: 7,
    });
    trace.decisions = vec![decision(None), decision(None)];
    trace.attempts = vec![attempt(2, LegKind::Whole)];
    let spans = request_spans(&trace);
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "POST /v1/chat/completions",
            "conductor.read",
            "conductor.decide",
            "conductor.decide",
            "chat m",
        ]
    );
    assert!(spans[0].parent_span_id.is_empty());
    assert!(spans[1..].iter().all(|span| span.parent_span_id == id(1).bytes()));
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), spans.len());
    assert_eq!(spans[4].span_id, id(2).bytes());
    let decoded = Span::decode(&*spans[0].encode_to_vec()).unwrap();
    assert_eq!(decoded, spans[0]);
}

#[test]
fn a_short_reading_has_no_span() {
    let mut trace = trace();
    trace.read = Some(ReadNote {
        ended: trace.facts.arrived + Duration::from_micros(900),
        bytes: 7,
    });
    assert_eq!(request_spans(&trace).len(), 1);
}

#[test]
fn a_client_that_left_is_no_error() {
    let mut trace = trace();
    trace.attempts = vec![attempt(2, LegKind::Whole)];
    trace.end.kind = EndKind::ClientLeft;
    trace.end.outcome = "client-left";
    for span in request_spans(&trace) {
        assert_eq!(status(&span), None, "{}", span.name);
        assert_eq!(attribute(&span, "error.type"), Some("client_left".into()));
    }
}

#[test]
fn only_faults_and_server_errors_are_errors() {
    let check = |kind, answered: Option<u16>, is_error: bool| {
        let mut trace = trace();
        (trace.end.kind, trace.end.status) = (kind, answered);
        let spans = request_spans(&trace);
        let expected = is_error.then_some(StatusCode::Error);
        assert_eq!(status(&spans[0]), expected, "{kind:?} {answered:?}");
        assert_eq!(attribute(&spans[0], "error.type").is_some(), is_error);
    };
    check(EndKind::Complete, Some(200), false);
    check(EndKind::Complete, Some(404), false);
    check(EndKind::Complete, Some(500), true);
    check(EndKind::Refused, Some(503), true);
    check(EndKind::Failed, Some(200), true);
}

#[test]
fn a_fault_of_a_policy_is_an_error_of_its_call_only() {
    let mut trace = trace();
    trace.decisions = vec![decision(Some("trap")), decision(None)];
    let spans = request_spans(&trace);
    let found: Vec<_> = spans.iter().map(status).collect();
    assert_eq!(found, [None, Some(StatusCode::Error), None]);
}

#[test]
fn a_prefill_leg_links_to_the_decode_leg_that_follows() {
    let mut trace = trace();
    trace.attempts = vec![attempt(2, LegKind::Prefill("nixl")), attempt(3, LegKind::Decode)];
    let spans = request_spans(&trace);
    let (prefill, decode) = (&spans[1], &spans[2]);
    assert_eq!(prefill.links[0].span_id, decode.span_id);
    assert!(decode.links.is_empty());
    assert_eq!(attribute(prefill, "conductor.dialect"), Some("nixl".into()));
    assert_eq!(attribute(decode, "conductor.leg"), Some("decode".into()));
}

#[test]
fn a_late_trace_is_marked() {
    let mut trace = trace();
    assert_eq!(attribute(&request_spans(&trace)[0], "conductor.late"), None);
    trace.identity.is_sampled = false;
    let spans = request_spans(&trace);
    assert_eq!(attribute(&spans[0], "conductor.late"), Some(Value::Flag(true)));
    assert_eq!(spans[0].flags & 1, 0);
}

#[test]
fn failed_retried_and_slow_requests_are_remarkable() {
    let slow = Some(Duration::from_secs(1));
    let check = |change: fn(&mut RequestTrace), is_remarkable: bool| {
        let mut trace = trace();
        change(&mut trace);
        assert_eq!(trace.is_remarkable(slow), is_remarkable);
    };
    check(|_| {}, false);
    check(|trace| trace.end.kind = EndKind::ClientLeft, true);
    check(|trace| trace.end.status = Some(502), true);
    check(|trace| trace.end.ttft = Some(Duration::from_secs(1)), false);
    check(|trace| trace.end.ttft = Some(Duration::from_secs(2)), true);
    check(|trace| trace.decisions = vec![decision(None)], false);
    check(|trace| trace.decisions = vec![decision(Some("trap"))], true);
    check(|trace| trace.attempts = vec![attempt(2, LegKind::Whole)], false);
    let retried = |trace: &mut RequestTrace| {
        let again = AttemptNote {
            resends: 1,
            ..attempt(2, LegKind::Whole)
        };
        trace.attempts = vec![again];
    };
    check(retried, true);
}

#[test]
fn hosts_and_ports_of_workers_are_found() {
    assert_eq!(address_of("http://a:8000"), ("a", Some(8000)));
    assert_eq!(address_of("https://a"), ("a", Some(443)));
    assert_eq!(address_of("http://[::1]:9/"), ("[::1]", Some(9)));
}
