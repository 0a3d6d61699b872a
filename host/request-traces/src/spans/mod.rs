//! Spans of one request, made of its notes.
//!
//! Every span but the request's own is a child of that one. A status is an error only for a 5xx and for a fault, never
//! for a client that left.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::context::SpanId;
use crate::ids::inner_span;
use crate::names;
use crate::notes::{AttemptNote, DecisionNote, EndKind, LegKind, QueueNote, RequestTrace};
use crate::otlp::{AnyValue, ArrayValue, Span, SpanKind, Value};
use crate::span_builder::SpanBuilder;

/// Time from which the reading of a body and a wait have spans of their own.
const LONG: Duration = Duration::from_millis(1);
/// Status from which an answer is a fault.
const SERVER_ERROR: u16 = 500;

/// Returns the spans of a request, its own first.
#[must_use]
pub fn request_spans(trace: &RequestTrace) -> Vec<Span> {
    let mut numbers = 0..;
    let mut inner = |name: &str| {
        let id = inner_span(trace.identity.span, numbers.next().unwrap_or_default());
        SpanBuilder::child(trace, id, name.to_owned(), SpanKind::Internal)
    };
    let mut spans = vec![request_span(trace)];
    if let Some(read) = trace.read {
        let span = inner(names::SPAN_READ).lasts(trace.facts.arrived, read.ended);
        let is_long = read.ended.saturating_duration_since(trace.facts.arrived) > LONG;
        spans.extend(is_long.then(|| span.with(names::HTTP_BODY_SIZE, read.bytes).end()));
    }
    if let Some(tokens) = trace.tokens {
        let span = inner(names::SPAN_TOKENS).lasts(tokens.began, tokens.ended);
        spans.push(span.maybe(names::PROMPT_TOKENS, tokens.tokens).end());
    }
    let is_long = |wait: &&QueueNote| wait.ended.saturating_duration_since(wait.began) > LONG;
    for wait in trace.queue.iter().filter(is_long) {
        spans.push(queue_span(inner(names::SPAN_QUEUE), *wait));
    }
    for call in &trace.decisions {
        spans.push(decision_span(inner(names::SPAN_DECIDE), call));
    }
    let attempts = trace.attempts.iter().enumerate();
    spans.extend(attempts.map(|(at, attempt)| attempt_span(trace, at, attempt)));
    spans
}

fn request_span(trace: &RequestTrace) -> Span {
    let (facts, end) = (&trace.facts, &trace.end);
    let status = end.status.filter(|status| *status >= SERVER_ERROR);
    let error = match end.kind {
        EndKind::ClientLeft => Some(names::CLIENT_LEFT),
        EndKind::Failed => Some(end.error.unwrap_or(end.outcome)),
        EndKind::Refused | EndKind::Complete => end.error,
    };
    let of_status = status.map(|status| status.to_string());
    let error = error.or(of_status.as_deref());
    let is_fault = end.kind != EndKind::ClientLeft && (end.kind == EndKind::Failed || status.is_some());
    let late = (!trace.identity.is_sampled).then_some(true);
    let (route, stages) = (&facts.route, &trace.stages);
    let explain = route.is_explained.then(|| explain_path(&facts.request_id));
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    SpanBuilder::server(trace, format!("{} {}", facts.method, facts.path))
        .lasts(facts.arrived, end.at)
        .with(names::HTTP_METHOD, facts.method)
        .with(names::HTTP_ROUTE, &*facts.path)
        .with(names::URL_PATH, &*facts.path)
        .maybe(names::HTTP_STATUS, end.status.map(u64::from))
        .with(names::REQUEST_ID, &*facts.request_id)
        .maybe(names::CLIENT, facts.client.as_deref())
        .with(names::GENERATION, facts.generation)
        .maybe(names::ROUTE, route.number.map(|number| number as u64))
        .maybe(names::POOL, route.pool.as_deref())
        .maybe(names::EXPLAIN, explain.as_deref())
        .maybe(names::READ_SECONDS, seconds(stages.read))
        .maybe(names::TOKENS_SECONDS, seconds(stages.tokens))
        .maybe(names::QUEUE_SECONDS, seconds(stages.queue))
        .maybe(names::DECIDE_SECONDS, seconds(stages.decide))
        .with(names::OUTCOME, end.outcome)
        .maybe(names::GEN_AI_MODEL, facts.model.as_deref())
        .maybe(names::LATE, late)
        .error(error, is_fault)
        .end()
}

/// Returns the path of the admin page that explains a request.
fn explain_path(request_id: &str) -> String {
    let mut path = String::from("/admin/explain/");
    for byte in request_id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(byte.into());
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

fn queue_span(span: SpanBuilder<'_>, wait: QueueNote) -> Span {
    span.lasts(wait.began, wait.ended)
        .with(names::HELD, wait.is_held)
        .maybe(names::CLASS, wait.class.map(i64::from))
        .end()
}

fn decision_span(span: SpanBuilder<'_>, call: &DecisionNote) -> Span {
    let (policy, answer) = (&call.policy, &call.answer);
    let seconds = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
    span.lasts(call.began, call.ended)
        .with(names::POLICY, &*policy.name)
        .maybe(names::POLICY_VERSION, policy.version.as_deref())
        .maybe(names::ARM, policy.arm.map(|arm| arm as u64))
        .with(names::ATTEMPT, u64::from(call.attempt))
        .with(names::PHASE, call.phase)
        .with(names::CANDIDATES, call.candidates as u64)
        .maybe(names::WORKER, answer.worker.as_ref().map(|worker| &*worker.name))
        .maybe(
            names::PREFILL_WORKER,
            answer.prefill.as_ref().map(|worker| &*worker.name),
        )
        .maybe(names::MATCHED_TOKENS, answer.matched_tokens.map(u64::from))
        .maybe(names::BEST_TOKENS, call.best_tokens.map(u64::from))
        .maybe(names::SCORE, answer.score)
        .maybe(names::VERDICT, answer.verdict)
        .with(names::FALLBACK, policy.version.is_none())
        .maybe(names::FAULT, answer.fault)
        .with(names::GATHER_SECONDS, seconds(call.began, call.called))
        .with(names::CALL_SECONDS, seconds(call.called, call.ended))
        .error(answer.fault, answer.fault.is_some())
        .end()
}

fn attempt_span(trace: &RequestTrace, at: usize, attempt: &AttemptNote) -> Span {
    let (facts, times) = (&trace.facts, &attempt.times);
    let name = match (facts.operation, &facts.model) {
        (Some(operation), Some(model)) => format!("{operation} {model}"),
        (Some(operation), None) => operation.to_owned(),
        (None, _) => facts.method.to_owned(),
    };
    let status = attempt.status.filter(|status| *status >= SERVER_ERROR);
    let of_status = status.map(|status| status.to_string());
    let is_cut = trace.end.kind == EndKind::ClientLeft && times.last_byte.is_none();
    let left = (is_cut && at + 1 == trace.attempts.len()).then_some(names::CLIENT_LEFT);
    let is_fault = attempt.error.is_some() || status.is_some();
    let (address, port) = address_of(&attempt.worker.url);
    let (leg, dialect) = match attempt.leg {
        LegKind::Whole => ("whole", None),
        LegKind::Prefill(dialect) => ("prefill", Some(dialect)),
        LegKind::Decode => ("decode", None),
    };
    let resends = (attempt.resends > 0).then(|| u64::from(attempt.resends));
    let span = SpanBuilder::child(trace, attempt.span, name, SpanKind::Client)
        .lasts(times.began, times.ended.unwrap_or(trace.end.at))
        .with(names::HTTP_METHOD, facts.method)
        .with(names::URL_PATH, &*facts.path)
        .maybe(names::HTTP_STATUS, attempt.status.map(u64::from))
        .maybe(names::HTTP_RESENDS, resends)
        .with(names::SERVER_ADDRESS, address)
        .maybe(names::SERVER_PORT, port)
        .with(names::WORKER, &*attempt.worker.name)
        .with(names::LEG, leg)
        .maybe(names::DIALECT, dialect)
        .event(names::EVENT_CONNECTED, times.connected)
        .event(names::EVENT_HEAD, times.head)
        .event(names::EVENT_FIRST_BYTE, times.first_byte)
        .event(names::EVENT_LAST_BYTE, times.last_byte)
        .link(decode_leg_of(trace, at))
        .error(attempt.error.or(of_status.as_deref()).or(left), is_fault);
    gen_ai(span, trace, attempt).end()
}

/// Adds the GenAI attributes. Those of the answer belong to the attempt that brought it.
fn gen_ai<'a>(span: SpanBuilder<'a>, trace: &'a RequestTrace, attempt: &AttemptNote) -> SpanBuilder<'a> {
    let (facts, usage) = (&trace.facts, &trace.usage);
    let Some(operation) = facts.operation else {
        return span;
    };
    let span = span
        .with(names::GEN_AI_OPERATION, operation)
        .with(names::GEN_AI_PROVIDER, names::PROVIDER)
        .maybe(names::GEN_AI_MODEL, facts.model.as_deref())
        .maybe(names::GEN_AI_STREAM, facts.params.stream)
        .maybe(names::GEN_AI_MAX_TOKENS, facts.params.max_tokens);
    let session = facts.params.session.map(|session| format!("{session:016x}"));
    let span = span.maybe(names::GEN_AI_CONVERSATION, session.as_deref());
    if matches!(attempt.leg, LegKind::Prefill(_)) || attempt.times.last_byte.is_none() {
        return span;
    }
    let first = attempt.times.first_byte.filter(|_| trace.end.ttft.is_some());
    let first = first.map(|first| first.saturating_duration_since(attempt.times.began));
    let finish = usage.finish.map(|finish| {
        Value::List(ArrayValue {
            values: vec![AnyValue {
                value: Some(finish.into()),
            }],
        })
    });
    span.maybe(names::GEN_AI_FIRST_CHUNK, first.map(|first| first.as_secs_f64()))
        .maybe(names::GEN_AI_INPUT_TOKENS, usage.prompt)
        .maybe(names::GEN_AI_OUTPUT_TOKENS, usage.output)
        .maybe(names::GEN_AI_CACHED_TOKENS, usage.cached)
        .maybe(names::GEN_AI_FINISH, finish)
}

/// Returns the decode leg that takes over from a prefill leg: the next one.
fn decode_leg_of(trace: &RequestTrace, prefill: usize) -> Option<SpanId> {
    if !matches!(trace.attempts[prefill].leg, LegKind::Prefill(_)) {
        return None;
    }
    let mut later = trace.attempts[prefill + 1..].iter();
    Some(later.find(|attempt| attempt.leg == LegKind::Decode)?.span)
}

/// Returns host and port of a worker's URL.
fn address_of(url: &str) -> (&str, Option<u64>) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split('/').next().unwrap_or_default();
    let given = authority
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match given {
        Some((host, port)) => (host, Some(port)),
        None => (authority, Some(if scheme == "https" { 443 } else { 80 })),
    }
}

#[cfg(test)]
mod tests;
