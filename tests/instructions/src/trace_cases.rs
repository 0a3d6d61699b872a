//! Cases of traces: the notes of a sampled request, and its spans.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use request_traces::otlp::Message;
use request_traces::{
    AttemptNote, AttemptTimes, CalledPolicyNote, ClockReading, DecisionNote, EndKind, GivenAnswer,
    GivenParams, IdSource, LegKind, RequestEnd, RequestFacts, RequestTrace, RouteNote, SamplingRule,
    StageTotals, TokenUsage, TraceIdentity, TraceParent, request_spans,
};
use routing::WorkerSpec;

use crate::cases::Outcome;

/// Takes the notes of requests.
pub(crate) fn noted(times: u32) -> Outcome {
    let (rule, worker) = (SamplingRule::new(0.0, None), worker());
    for seq in 0..times {
        let trace = notes(&rule, &worker, u64::from(seq));
        black_box(trace.identity.is_sampled || trace.is_remarkable(rule.slow));
    }
    Ok(())
}

/// Takes the notes of requests, and makes encoded spans of them.
pub(crate) fn exported(times: u32) -> Outcome {
    let (rule, worker) = (SamplingRule::new(1.0, None), worker());
    for seq in 0..times {
        let trace = notes(&rule, &worker, u64::from(seq));
        for span in request_spans(&trace) {
            black_box(span.encode_to_vec());
        }
    }
    Ok(())
}

fn worker() -> Arc<WorkerSpec> {
    Arc::new(WorkerSpec::mixed("w0", "http://127.0.0.1:8000"))
}

/// Returns the notes of a plain request, with the header for its worker.
fn notes(rule: &SamplingRule, worker: &Arc<WorkerSpec>, seq: u64) -> Box<RequestTrace> {
    let ids = IdSource::new([black_box(1), 2]);
    let (trace, now) = (ids.trace(seq), Instant::now());
    let identity = TraceIdentity {
        trace,
        span: ids.span(seq, 0),
        parent: None,
        is_sampled: rule.decide(trace, None, false, || true),
    };
    let span = ids.span(seq, 1);
    let header = TraceParent {
        trace,
        span,
        is_sampled: identity.is_sampled,
    };
    black_box(header.write());
    let times = AttemptTimes {
        first_byte: Some(now),
        last_byte: Some(now),
        ended: Some(now),
        ..AttemptTimes::begin(now)
    };
    Box::new(RequestTrace {
        identity,
        clock: ClockReading {
            instant: now,
            system: SystemTime::UNIX_EPOCH,
        },
        facts: RequestFacts {
            arrived: now,
            method: "POST",
            path: "/v1/chat/completions".into(),
            operation: Some("chat"),
            request_id: "req-01234567-89".into(),
            client: None,
            generation: 1,
            route: RouteNote {
                number: Some(1),
                pool: Some("chat".into()),
                is_explained: false,
            },
            model: Some("bench".into()),
            params: GivenParams::default(),
        },
        read: None,
        tokens: None,
        queue: Vec::new(),
        decisions: vec![DecisionNote {
            began: now,
            called: now,
            ended: now,
            policy: CalledPolicyNote {
                name: "cache-aware".into(),
                version: Some(Arc::from("0123456789ab")),
                arm: None,
            },
            phase: "mixed",
            attempt: 0,
            candidates: 8,
            best_tokens: Some(1_024),
            answer: GivenAnswer {
                verdict: Some("route"),
                worker: Some(Arc::clone(worker)),
                ..GivenAnswer::default()
            },
        }],
        attempts: vec![AttemptNote {
            span,
            worker: Arc::clone(worker),
            leg: LegKind::Whole,
            resends: 0,
            times,
            status: Some(200),
            error: None,
        }],
        usage: TokenUsage::default(),
        stages: StageTotals::default(),
        end: RequestEnd {
            at: now + Duration::from_millis(1),
            outcome: "complete",
            kind: EndKind::Complete,
            status: Some(200),
            error: None,
            ttft: None,
        },
    })
}
