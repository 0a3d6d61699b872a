//! Stages of a recorded request, relative to its arrival.
//!
//! They follow from the times that a record has anyway: its arrival, its calls, the connection of its last attempt and
//! its answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::CallNote;
use crate::trace::Trace;

/// Stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Arrival of the body, and all else before the first decision but tokenization.
    Read,
    /// Tokenization of the prompt.
    Tokens,
    /// Wait in the queue, before the first decision and after each that holds the request.
    Queue,
    /// One call of a policy.
    Decide,
    /// Placement to the connection of the worker that answers. That of a failed attempt belongs to [`Self::FirstByte`].
    Connect,
    /// Connection to the first byte of the answer.
    FirstByte,
    /// First byte to the end of the answer.
    Stream,
}

/// One stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StageSpan {
    /// Stage.
    pub stage: Stage,
    /// Start, in seconds since the arrival.
    pub start_s: f64,
    /// Duration in seconds.
    pub duration_s: f64,
}

/// Call of a policy as the stages need it.
#[derive(Debug, Clone, Copy)]
struct CallTimes {
    start: Duration,
    end: Duration,
    /// Set if the call sent the request to a worker.
    is_placed: bool,
}

/// Times of an answer since the arrival.
#[derive(Debug, Clone, Copy, Default)]
struct AnswerTimes {
    /// Duration of the connection.
    connect: Option<Duration>,
    /// First byte.
    first: Option<Duration>,
    /// End of the request.
    end: Option<Duration>,
}

/// Returns the stages of a record.
pub(crate) fn of(trace: &Trace) -> Vec<StageSpan> {
    let start = &trace.request.start;
    let (calls, answer) = {
        let progress = trace.progress();
        let times = |call: &CallNote| {
            // A call is recorded at its end.
            let end = call.at.duration_since(start.arrived_at).unwrap_or_default();
            let begun = end.saturating_sub(call.took).max(start.prepared);
            CallTimes {
                start: begun,
                end: end.max(begun),
                is_placed: call.is_placed(),
            }
        };
        let calls: Vec<CallTimes> = progress.calls.iter().map(|record| times(&record.call)).collect();
        let outcome = progress.outcome.as_ref();
        let first_token = outcome.and_then(|outcome| seconds(outcome.ttft_ms?.0));
        let answer = AnswerTimes {
            connect: progress.connect,
            first: first_token.or(progress.response.first_token).or(progress.head),
            end: outcome.and_then(|outcome| seconds(outcome.duration_ms.0)),
        };
        (calls, answer)
    };
    let mut spans = Spans::default();
    let tokens = start.tokens.unwrap_or_default().min(start.prepared);
    spans.add(Stage::Read, Duration::ZERO, start.prepared - tokens);
    if start.tokens.is_some() {
        spans.add(Stage::Tokens, start.prepared - tokens, start.prepared);
    }
    let after = spans.add_calls(start.prepared, &calls);
    spans.add_answer(after, answer);
    spans.0
}

#[derive(Debug, Default)]
struct Spans(Vec<StageSpan>);

impl Spans {
    fn add(&mut self, stage: Stage, from: Duration, to: Duration) {
        self.0.push(StageSpan {
            stage,
            start_s: from.as_secs_f64(),
            duration_s: to.saturating_sub(from).as_secs_f64(),
        });
    }

    /// Adds the calls and the pauses between them. Returns the end of the last one.
    fn add_calls(&mut self, prepared: Duration, calls: &[CallTimes]) -> Duration {
        let (mut until, mut pause) = (prepared, Stage::Queue);
        for call in calls {
            if call.start > until {
                self.add(pause, until, call.start);
            }
            self.add(Stage::Decide, call.start, call.end);
            until = call.end.max(until);
            // The pause after a placement is a failed attempt.
            pause = if call.is_placed {
                Stage::FirstByte
            } else {
                Stage::Queue
            };
        }
        until
    }

    fn add_answer(&mut self, after: Duration, answer: AnswerTimes) {
        let Some(first) = answer.first else { return };
        let connected = after + answer.connect.unwrap_or_default();
        let connected = connected.min(first.max(after));
        if answer.connect.is_some() {
            self.add(Stage::Connect, after, connected);
        }
        self.add(Stage::FirstByte, connected, first);
        if let Some(end) = answer.end {
            self.add(Stage::Stream, first, end);
        }
    }
}

fn seconds(milliseconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(milliseconds / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    const fn call(start: u64, end: u64, is_placed: bool) -> CallTimes {
        CallTimes {
            start: ms(start),
            end: ms(end),
            is_placed,
        }
    }

    #[track_caller]
    fn check(calls: &[CallTimes], answer: AnswerTimes, expected: &[(Stage, f64, f64)]) {
        let mut spans = Spans::default();
        let after = spans.add_calls(ms(10), calls);
        spans.add_answer(after, answer);
        let rounded = |seconds: f64| (seconds * 1e6).round() / 1e3;
        let spans = spans.0.iter();
        let found: Vec<_> = spans
            .map(|span| (span.stage, rounded(span.start_s), rounded(span.duration_s)))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_held_request_waits_between_its_calls() {
        let answer = AnswerTimes {
            connect: None,
            first: Some(ms(80)),
            end: Some(ms(100)),
        };
        check(
            &[call(12, 13, false), call(40, 41, true)],
            answer,
            &[
                (Stage::Queue, 10.0, 2.0),
                (Stage::Decide, 12.0, 1.0),
                (Stage::Queue, 13.0, 27.0),
                (Stage::Decide, 40.0, 1.0),
                (Stage::FirstByte, 41.0, 39.0),
                (Stage::Stream, 80.0, 20.0),
            ],
        );
    }

    #[test]
    fn the_connection_of_the_answering_worker_has_a_stage_of_its_own() {
        let answer = |connect| AnswerTimes {
            connect: Some(ms(connect)),
            first: Some(ms(80)),
            end: None,
        };
        let decide = (Stage::Decide, 12.0, 1.0);
        let queue = (Stage::Queue, 10.0, 2.0);
        let parts = [(Stage::Connect, 13.0, 5.0), (Stage::FirstByte, 18.0, 62.0)];
        check(
            &[call(12, 13, true)],
            answer(5),
            &[queue, decide, parts[0], parts[1]],
        );
        // The clocks of the record differ by a little: no stage is negative.
        let parts = [(Stage::Connect, 13.0, 67.0), (Stage::FirstByte, 80.0, 0.0)];
        check(
            &[call(12, 13, true)],
            answer(500),
            &[queue, decide, parts[0], parts[1]],
        );
    }

    #[test]
    fn a_pause_after_a_placement_is_a_failed_attempt() {
        check(
            &[call(10, 11, true), call(31, 32, true)],
            AnswerTimes::default(),
            &[
                (Stage::Decide, 10.0, 1.0),
                (Stage::FirstByte, 11.0, 20.0),
                (Stage::Decide, 31.0, 1.0),
            ],
        );
    }
}
