//! Notes of one request: identity, facts, times, decisions and attempts. Spans are made of them at the export.

use std::mem::size_of;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use routing::WorkerSpec;

use crate::context::{SpanId, TraceId};

/// Notes of a request that has ended.
#[derive(Debug)]
pub struct RequestTrace {
    /// Ids.
    pub identity: TraceIdentity,
    /// Reading of both clocks, by which times become times of day.
    pub clock: ClockReading,
    /// Facts of the request.
    pub facts: RequestFacts,
    /// Reading of the body.
    pub read: Option<ReadNote>,
    /// Search for the tokens of the prompt.
    pub tokens: Option<TokensNote>,
    /// Waits in the queue.
    pub queue: Vec<QueueNote>,
    /// Calls of policies and of the fallback.
    pub decisions: Vec<DecisionNote>,
    /// Attempts on workers.
    pub attempts: Vec<AttemptNote>,
    /// Tokens of the answer.
    pub usage: TokenUsage,
    /// Times of the stages before the answer.
    pub stages: StageTotals,
    /// End of the request.
    pub end: RequestEnd,
}

/// Ids of a request's trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceIdentity {
    /// The trace.
    pub trace: TraceId,
    /// The request's own span.
    pub span: SpanId,
    /// The client's span. `None` where the request begins the trace.
    pub parent: Option<SpanId>,
    /// Set if the request was sampled at its arrival. A trace that is exported without it is a late one.
    pub is_sampled: bool,
}

/// Reading of both clocks at one time.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    /// Monotonic clock.
    pub instant: Instant,
    /// Time of day.
    pub system: SystemTime,
}

/// Facts of a request.
#[derive(Debug)]
pub struct RequestFacts {
    /// Time of its arrival.
    pub arrived: Instant,
    /// Method.
    pub method: &'static str,
    /// Path of the endpoint, without ids and query.
    pub path: Box<str>,
    /// GenAI operation of the endpoint. `None` for an endpoint without one.
    pub operation: Option<&'static str>,
    /// The request's `x-request-id`, visible characters only.
    pub request_id: Box<str>,
    /// Name of the client whose key the request has.
    pub client: Option<Box<str>>,
    /// Generation of the configuration.
    pub generation: u64,
    /// Route of the request.
    pub route: RouteNote,
    /// Model, where the configuration or a worker names it.
    pub model: Option<Box<str>>,
    /// Parameters of the body.
    pub params: GivenParams,
}

/// Route of a request, as far as it is known.
#[derive(Debug, Clone, Default)]
pub struct RouteNote {
    /// Number of the route, from 1.
    pub number: Option<usize>,
    /// Pool of the route.
    pub pool: Option<Box<str>>,
    /// Set if the admin page explains the request.
    pub is_explained: bool,
}

/// Times of a request's stages. `None` for a stage that it did not reach.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageTotals {
    /// Reception of the body.
    pub read: Option<Duration>,
    /// Tokenization of the prompt.
    pub tokens: Option<Duration>,
    /// Admission, with all waits.
    pub queue: Option<Duration>,
    /// All decisions.
    pub decide: Option<Duration>,
}

/// Parameters that the body states.
#[derive(Debug, Clone, Copy, Default)]
pub struct GivenParams {
    /// Set for a streamed answer. `None` where the body was not read.
    pub stream: Option<bool>,
    /// Most tokens of the answer.
    pub max_tokens: Option<u64>,
    /// Hash of the client's session.
    pub session: Option<u64>,
}

/// Reading of the body.
#[derive(Debug, Clone, Copy)]
pub struct ReadNote {
    /// End of the reading, which begins with the arrival.
    pub ended: Instant,
    /// Size of the body, in bytes.
    pub bytes: u64,
}

/// Search for the tokens of the prompt.
#[derive(Debug, Clone, Copy)]
pub struct TokensNote {
    /// Begin of the search.
    pub began: Instant,
    /// End of the search.
    pub ended: Instant,
    /// Number of tokens. `None` where they were not learned.
    pub tokens: Option<u64>,
}

/// Wait for admission, or for the policy's answer.
#[derive(Debug, Clone, Copy)]
pub struct QueueNote {
    /// Begin of the wait.
    pub began: Instant,
    /// End of the wait.
    pub ended: Instant,
    /// Set if the policy holds the request.
    pub is_held: bool,
    /// Class of the request. `None` where it is not known yet.
    pub class: Option<i32>,
}

/// Call of a policy, or of the fallback.
#[derive(Debug)]
pub struct DecisionNote {
    /// Begin of the call, before the candidates are listed.
    pub began: Instant,
    /// Begin of the policy's part.
    pub called: Instant,
    /// End of the call.
    pub ended: Instant,
    /// The policy.
    pub policy: CalledPolicyNote,
    /// Placed part of the request.
    pub phase: &'static str,
    /// Number of decisions before this one.
    pub attempt: u32,
    /// Number of candidates.
    pub candidates: usize,
    /// Longest match of a candidate, in tokens.
    pub best_tokens: Option<u32>,
    /// Answer of the policy.
    pub answer: GivenAnswer,
}

/// Policy of a call.
#[derive(Debug)]
pub struct CalledPolicyNote {
    /// Name. For the fallback the name of the policy in whose place it decides.
    pub name: Box<str>,
    /// Version. `None` for the fallback.
    pub version: Option<Arc<str>>,
    /// Arm of a trial.
    pub arm: Option<usize>,
}

/// Answer of a policy.
#[derive(Debug, Default)]
pub struct GivenAnswer {
    /// Kind of the verdict. `None` after a fault.
    pub verdict: Option<&'static str>,
    /// Kind of the fault.
    pub fault: Option<&'static str>,
    /// Chosen worker.
    pub worker: Option<Arc<WorkerSpec>>,
    /// Chosen worker of the prefill leg.
    pub prefill: Option<Arc<WorkerSpec>>,
    /// Tokens of the prompt that the chosen worker holds.
    pub matched_tokens: Option<u32>,
    /// The policy's own figure of merit for its choice.
    pub score: Option<f64>,
}

/// Attempt on one worker: the whole request, or one leg of it.
#[derive(Debug)]
pub struct AttemptNote {
    /// Id of its span, which the worker is sent as the parent.
    pub span: SpanId,
    /// The worker.
    pub worker: Arc<WorkerSpec>,
    /// Leg of the request.
    pub leg: LegKind,
    /// Number of attempts of this leg before.
    pub resends: u32,
    /// Times.
    pub times: AttemptTimes,
    /// Status of the answer.
    pub status: Option<u16>,
    /// Kind of the failure.
    pub error: Option<&'static str>,
}

/// Leg of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LegKind {
    /// Not split.
    Whole,
    /// Computes the prompt, with the dialect of the hand-over.
    Prefill(&'static str),
    /// Computes the answer.
    Decode,
}

/// Times of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct AttemptTimes {
    /// Begin of the attempt.
    pub began: Instant,
    /// Connection at hand, kept or new.
    pub connected: Option<Instant>,
    /// Head of the answer.
    pub head: Option<Instant>,
    /// First byte of the body.
    pub first_byte: Option<Instant>,
    /// Last byte of the body.
    pub last_byte: Option<Instant>,
    /// End of the attempt. `None` where nothing ended it but the end of the request.
    pub ended: Option<Instant>,
}

/// Tokens of a request, as its answer reports them.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenUsage {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Tokens of the prompt from the engine's cache.
    pub cached: Option<u64>,
    /// Tokens of the answer.
    pub output: Option<u64>,
    /// Reason for the end of the answer.
    pub finish: Option<&'static str>,
}

/// End of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestEnd {
    /// Time of the end.
    pub at: Instant,
    /// Outcome.
    pub outcome: &'static str,
    /// Kind of the outcome.
    pub kind: EndKind,
    /// Status that the client was sent.
    pub status: Option<u16>,
    /// Code of the router's own error.
    pub error: Option<&'static str>,
    /// Time to the first token.
    pub ttft: Option<Duration>,
}

/// Kind of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndKind {
    /// The whole answer was relayed.
    Complete,
    /// The client left.
    ClientLeft,
    /// The router refused the request.
    Refused,
    /// A worker failed, or a time limit passed.
    Failed,
}

impl RequestTrace {
    /// Returns the notes of a request of which only the arrival and the end are known.
    #[must_use]
    pub fn begin(identity: TraceIdentity, clock: ClockReading, facts: RequestFacts, end: RequestEnd) -> Self {
        Self {
            identity,
            clock,
            facts,
            read: None,
            tokens: None,
            queue: Vec::new(),
            decisions: Vec::new(),
            attempts: Vec::new(),
            usage: TokenUsage::default(),
            stages: StageTotals::default(),
            end,
        }
    }

    /// Returns whether the trace is exported although it was not sampled: the request failed, was sent twice, was
    /// placed by the fallback, or was slow.
    #[must_use]
    pub fn is_remarkable(&self, slow: Option<Duration>) -> bool {
        let is_slow = slow.is_some_and(|slow| self.end.ttft.is_some_and(|ttft| ttft > slow));
        let is_fallback = |call: &DecisionNote| call.policy.version.is_none() || call.answer.fault.is_some();
        self.end.kind != EndKind::Complete
            || self.end.status.is_some_and(|status| status >= 500)
            || is_slow
            || self.decisions.iter().any(is_fallback)
            || self.attempts.iter().any(|attempt| attempt.resends > 0)
    }

    /// Returns the memory that the notes take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_deref().map_or(0, str::len);
        let decisions = self.decisions.iter().map(|call| call.policy.name.len());
        size_of::<Self>()
            + self.facts.path.len()
            + self.facts.request_id.len()
            + text(&self.facts.route.pool)
            + text(&self.facts.client)
            + text(&self.facts.model)
            + self.queue.capacity() * size_of::<QueueNote>()
            + self.decisions.capacity() * size_of::<DecisionNote>()
            + self.attempts.capacity() * size_of::<AttemptNote>()
            + decisions.sum::<usize>()
    }
}

impl RequestFacts {
    /// Returns the facts of an arrival. Everything that is read later is empty.
    #[must_use]
    pub fn of_arrival(arrived: Instant, method: &'static str, path: Box<str>) -> Self {
        Self {
            arrived,
            method,
            path,
            operation: None,
            request_id: Box::default(),
            client: None,
            generation: 1,
            route: RouteNote::default(),
            model: None,
            params: GivenParams::default(),
        }
    }
}

impl ClockReading {
    /// Returns a time as nanoseconds since 1970.
    #[must_use]
    pub fn unix_nanos(&self, at: Instant) -> u64 {
        let since = self.system.duration_since(SystemTime::UNIX_EPOCH);
        let read = nanos(since.unwrap_or_default());
        match at.checked_duration_since(self.instant) {
            Some(later) => read.saturating_add(nanos(later)),
            None => read.saturating_sub(nanos(self.instant.duration_since(at))),
        }
    }
}

impl AttemptTimes {
    /// Returns the times of an attempt that begins now.
    #[must_use]
    pub fn begin(now: Instant) -> Self {
        Self {
            began: now,
            connected: None,
            head: None,
            first_byte: None,
            last_byte: None,
            ended: None,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_the_reading_keep_their_distance() {
        let instant = Instant::now() + Duration::from_secs(10);
        let clock = ClockReading {
            instant,
            system: SystemTime::UNIX_EPOCH + Duration::from_secs(100),
        };
        let second = 1_000_000_000;
        assert_eq!(clock.unix_nanos(instant), 100 * second);
        assert_eq!(clock.unix_nanos(instant - Duration::from_secs(4)), 96 * second);
        assert_eq!(clock.unix_nanos(instant + Duration::from_secs(4)), 104 * second);
    }
}
