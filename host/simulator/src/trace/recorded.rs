//! Recording of a router: its trace, and the measured outcomes of its requests. The caller has read the log.

use std::collections::HashMap;
use std::sync::Arc;

use super::mooncake::MOST_TOKENS;
use crate::outcome::{End, Outcome, RequestOutcome, WorkerUse};
use crate::request::{AfterAnswer, Request, Trace};

/// Marks ids of blocks that are like no other.
const ALONE: u64 = 1 << 63;

/// A request as a router recorded it. Times are microseconds of one clock, whenever that began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Time of its first decision.
    pub at_us: u64,
    /// Time of the decision that led to its answer.
    pub dispatched_us: u64,
    /// Time of the first byte of its answer, if it was seen.
    pub first_token_us: Option<u64>,
    /// Time of the last byte.
    pub finished_us: u64,
    /// Length of its prompt.
    pub prompt_tokens: u32,
    /// Length of its answer.
    pub output_tokens: u32,
    /// Ids of its prompt's complete blocks, as far as they are known: equal where two prompts are the same up to the
    /// block's end. Below 2^63.
    pub blocks: Vec<u64>,
    /// Equal for requests of a conversation.
    pub session: Option<u64>,
    /// Index of the worker that answered.
    pub worker: usize,
    /// Index of the worker that computed the prompt, if that was another one.
    pub prefill: Option<usize>,
    /// Tokens of the prompt that were not computed, if known.
    pub cached_tokens: Option<u32>,
    /// Requested model.
    pub model: Arc<str>,
}

/// Trace with the measured outcomes of its requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Requests in the order of their first decisions, the first of which is at 0.
    pub trace: Trace,
    /// Measured outcomes. Times between tokens are not recorded, only their mean ([`Recording::mean_gap_us`]).
    pub measured: Outcome,
    /// Flag of each request: set if its cached tokens are known. In `measured` they are 0 otherwise.
    pub has_cached: Vec<bool>,
}

impl Recording {
    /// Returns the recording of requests in any order, on so many workers, with blocks of so many tokens (above 0).
    ///
    /// A prompt's end that fills no block, and all of a prompt whose blocks are not known, is like no other's. Lengths
    /// of 0 count as 1. The blocks of an answer are those that the next prompt of its session has in its place.
    #[must_use]
    pub fn of(name: &str, block_tokens: u32, workers: usize, mut recorded: Vec<RecordedRequest>) -> Self {
        recorded.sort_by_key(|request| request.at_us);
        let start_us = recorded.first().map_or(0, |first| first.at_us);
        let mut alone = ALONE;
        let grown = grown_blocks(&recorded, block_tokens);
        let linked = grown.into_iter().zip(after_answers(&recorded));
        let requests = recorded
            .iter()
            .zip(linked)
            .map(|(request, (grown_blocks, after))| {
                let request = request.within_reason();
                Request {
                    at_us: request.at_us - start_us,
                    prompt_tokens: request.prompt_tokens,
                    output_tokens: request.output_tokens,
                    blocks: blocks(&request, block_tokens, &mut alone),
                    grown_blocks,
                    session: request.session,
                    after,
                    tenant: None,
                    model: request.model,
                }
            });
        let trace = Trace {
            name: name.to_owned(),
            block_tokens,
            requests: requests.collect(),
        };
        let mut measured = Outcome {
            workers: vec![WorkerUse::default(); workers],
            ..Outcome::default()
        };
        for request in &recorded {
            let course = request.within_reason().course(start_us, block_tokens);
            let computes = request.prefill.unwrap_or(request.worker);
            if let Some(worker) = measured.workers.get_mut(computes) {
                worker.computes = true;
                worker.computed_tokens +=
                    u64::from(request.prompt_tokens.saturating_sub(course.cached_tokens));
            }
            measured.courses.push(course);
        }
        Self {
            trace,
            measured,
            has_cached: recorded
                .iter()
                .map(|request| request.cached_tokens.is_some())
                .collect(),
        }
    }

    /// Returns its first so many requests, or all where it has no more.
    #[must_use]
    pub fn first(mut self, requests: usize) -> Self {
        self.trace = self.trace.first(requests);
        self.measured.courses.truncate(requests);
        self.has_cached.truncate(requests);
        self
    }

    /// Returns the mean time between a request's tokens, in microseconds, where its first one was seen and it had
    /// another.
    #[must_use]
    pub fn mean_gap_us(&self, request: usize) -> Option<f64> {
        let course = self.measured.courses.get(request)?;
        let gaps = self.trace.requests.get(request)?.output_tokens - 1;
        let took_us = course.finished_us?.checked_sub(course.first_token_us?)?;
        (gaps > 0).then(|| took_us as f64 / f64::from(gaps))
    }
}

impl RecordedRequest {
    /// Returns the request with lengths that a trace may have, and times in their order: clocks may be set while a
    /// router records.
    fn within_reason(&self) -> Self {
        let prompt_tokens = self.prompt_tokens.clamp(1, MOST_TOKENS);
        let dispatched_us = self.dispatched_us.max(self.at_us);
        let first_token_us = self.first_token_us.map(|first| first.max(dispatched_us));
        Self {
            prompt_tokens,
            output_tokens: self.output_tokens.clamp(1, MOST_TOKENS),
            dispatched_us,
            first_token_us,
            finished_us: self.finished_us.max(first_token_us.unwrap_or(dispatched_us)),
            cached_tokens: self.cached_tokens.map(|cached| cached.min(prompt_tokens)),
            ..self.clone()
        }
    }

    fn course(&self, start_us: u64, block_tokens: u32) -> RequestOutcome {
        let cached_tokens = self.cached_tokens.unwrap_or_default();
        RequestOutcome {
            dispatched_us: Some(self.dispatched_us - start_us),
            first_token_us: self.first_token_us.map(|first| first - start_us),
            finished_us: Some(self.finished_us - start_us),
            cached_tokens,
            cached_blocks: cached_tokens.div_ceil(block_tokens),
            prefill: Some(self.prefill.unwrap_or(self.worker)),
            worker: Some(self.worker),
            end: End::Served,
            ..RequestOutcome::arrived(self.at_us - start_us)
        }
    }
}

/// Returns for each request the complete blocks of its prompt and its answer, from a later prompt of the same session
/// that repeats both. Empty where there is none.
fn grown_blocks(recorded: &[RecordedRequest], block_tokens: u32) -> Vec<Box<[u64]>> {
    let mut next_of: HashMap<u64, &RecordedRequest> = HashMap::new();
    let mut grown: Vec<Box<[u64]>> = Vec::with_capacity(recorded.len());
    for request in recorded.iter().rev() {
        let next = request
            .session
            .and_then(|session| next_of.insert(session, request));
        grown.push(next.map_or_else(Box::default, |next| {
            // The last token of an answer is never an input, so its KV cache is not computed.
            let tokens = request
                .prompt_tokens
                .saturating_add(request.output_tokens)
                .saturating_sub(1);
            let blocks = (tokens / block_tokens) as usize;
            let repeats = next.prompt_tokens > tokens && next.blocks.starts_with(&request.blocks);
            match next.blocks.get(..blocks) {
                Some(grown) if repeats && blocks > request.blocks.len() => grown.into(),
                _ => Box::default(),
            }
        }));
    }
    grown.reverse();
    grown
}

/// Returns for each request the last one of its session that had ended when it arrived: its client had read that
/// answer.
fn after_answers(recorded: &[RecordedRequest]) -> Vec<Option<AfterAnswer>> {
    let mut sessions: HashMap<u64, SessionAnswers> = HashMap::new();
    let after = recorded.iter().enumerate().map(|(number, request)| {
        let session = sessions.entry(request.session?).or_default();
        let last = session.last_ended(request.at_us);
        session
            .running
            .push((request.within_reason().finished_us, number));
        let (ended_us, earlier) = last?;
        Some(AfterAnswer {
            request: earlier,
            pause_us: request.at_us - ended_us,
        })
    });
    after.collect()
}

/// Answers of a session: their ends in microseconds, and the indices of their requests.
#[derive(Debug, Default)]
struct SessionAnswers {
    last: Option<(u64, usize)>,
    /// Requests that had not ended when the latest one arrived.
    running: Vec<(u64, usize)>,
}

impl SessionAnswers {
    /// Returns the answer that ended last, at `now_us` or before. `now_us` never decreases.
    fn last_ended(&mut self, now_us: u64) -> Option<(u64, usize)> {
        let ended = self.running.extract_if(.., |(ended_us, _)| *ended_us <= now_us);
        self.last = ended.max().max(self.last);
        self.last
    }
}

/// Returns one id for each block of a prompt, the last of which may be part of one.
fn blocks(request: &RecordedRequest, block_tokens: u32, alone: &mut u64) -> Box<[u64]> {
    let count = request.prompt_tokens.div_ceil(block_tokens) as usize;
    let complete = (request.prompt_tokens / block_tokens) as usize;
    let known = request.blocks.iter().copied().take(complete);
    let mut blocks: Vec<u64> = known.collect();
    while blocks.len() < count {
        blocks.push(*alone);
        *alone += 1;
    }
    blocks.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{LatencyTargets, Summary};
    use crate::trace::TraceFacts;

    fn request(at_us: u64, prompt_tokens: u32, blocks: &[u64]) -> RecordedRequest {
        RecordedRequest {
            at_us,
            dispatched_us: at_us + 10,
            first_token_us: Some(at_us + 1_010),
            finished_us: at_us + 5_010,
            prompt_tokens,
            output_tokens: 5,
            blocks: blocks.to_vec(),
            session: None,
            worker: 0,
            prefill: None,
            cached_tokens: None,
            model: "".into(),
        }
    }

    #[test]
    fn a_recording_begins_with_its_first_request_and_shares_what_was_shared() {
        let later = RecordedRequest {
            cached_tokens: Some(32),
            ..request(9_000, 40, &[1, 2])
        };
        let recording = Recording::of("log", 16, 1, vec![later, request(7_000, 40, &[1, 2])]);
        let requests = &recording.trace.requests;
        assert_eq!((requests[0].at_us, requests[1].at_us), (0, 2_000));
        assert_eq!(requests[1].blocks[..2], [1, 2]);
        assert_ne!(
            requests[0].blocks[2], requests[1].blocks[2],
            "an end that fills no block"
        );
        let facts = TraceFacts::of(&recording.trace);
        assert_eq!((facts.blocks, facts.ideal_token_hit), (6, 0.4));
        let summary = Summary::of(&recording.trace, &recording.measured, &LatencyTargets::default());
        assert_eq!((summary.served, summary.token_hit_ratio), (2, 0.4));
        assert_eq!(summary.ttft_s.max, 0.001_01);
        assert_eq!(recording.mean_gap_us(1), Some(1_000.0));
        assert_eq!(recording.has_cached, [false, true]);
    }

    #[test]
    fn the_blocks_of_an_answer_are_those_that_the_next_prompt_of_the_session_repeats() {
        let turn = |at_us, prompt_tokens, blocks: &[u64], session| RecordedRequest {
            output_tokens: 17,
            session: Some(session),
            ..request(at_us, prompt_tokens, blocks)
        };
        let recorded = vec![
            turn(0, 40, &[1, 2], 7),
            turn(1, 40, &[1, 2], 8),
            turn(9_000, 70, &[1, 2, 3, 4], 7),
            turn(9_001, 70, &[5, 6, 7, 8], 8),
        ];
        let trace = Recording::of("log", 16, 1, recorded).trace;
        let grown: Vec<&[u64]> = trace
            .requests
            .iter()
            .map(|request| &*request.grown_blocks)
            .collect();
        let none: &[u64] = &[];
        // 40 + 17 - 1 tokens fill three blocks. The other session went on with another prompt.
        assert_eq!(grown, [&[1, 2, 3], none, none, none]);
    }

    #[test]
    fn a_next_turn_arrives_after_the_last_answer_that_had_ended() {
        let turn = |at_us, finished_us, session| RecordedRequest {
            finished_us,
            session,
            ..request(at_us, 40, &[1, 2])
        };
        let recorded = vec![
            turn(0, 5_000, Some(7)),
            turn(1_000, 4_000, None),
            turn(6_000, 9_000, Some(7)),
            turn(6_500, 8_000, Some(7)),
            turn(20_000, 30_000, Some(7)),
        ];
        let trace = Recording::of("log", 16, 1, recorded).trace;
        let after = |trace: &Trace| -> Vec<Option<(usize, u64)>> {
            let after = trace.requests.iter().map(|request| request.after);
            after
                .map(|after| Some((after?.request, after?.pause_us)))
                .collect()
        };
        let expected = [None, None, Some((0, 1_000)), Some((0, 1_500)), Some((2, 11_000))];
        assert_eq!(after(&trace), expected);
        let faster = after(&trace.clone().at_speed(2.0));
        assert_eq!(faster[4], Some((2, 5_500)));
        assert_eq!(after(&trace.at_recorded_times()), [None; 5]);
    }

    #[test]
    fn prompts_whose_blocks_are_not_known_share_nothing() {
        let recording = Recording::of("log", 16, 1, vec![request(0, 40, &[]), request(1, 40, &[])]);
        assert_eq!(TraceFacts::of(&recording.trace).unique_blocks, 6);
    }

    #[test]
    fn a_clock_that_was_set_back_leaves_no_time_before_another() {
        let odd = RecordedRequest {
            dispatched_us: 5,
            first_token_us: Some(3),
            finished_us: 0,
            prompt_tokens: 0,
            output_tokens: 0,
            ..request(100, 0, &[1])
        };
        let recording = Recording::of("log", 16, 1, vec![odd]);
        let course = &recording.measured.courses[0];
        assert_eq!((course.ttft_us(), course.finished_us), (Some(0), Some(0)));
        let request = &recording.trace.requests[0];
        assert_eq!(
            (request.prompt_tokens, request.output_tokens, request.blocks.len()),
            (1, 1, 1)
        );
        assert_eq!(recording.mean_gap_us(0), None);
    }
}
