//! Decoding: a batch of answers that step together (continuous batching), and those that wait for room.
//!
//! A request is let in when its prompt and its whole answer fit, so that none has to be thrown out again; one that is
//! too large for the worker is let in alone. Each step writes one token of each. The times of the steps are kept once
//! for all, so that a request's gaps are exact at the cost of one number a step.

use std::collections::{BTreeMap, VecDeque};

use super::gaps::TokenGaps;
use super::job::{EngineEventKind, Job};

/// Steps kept before those that are not needed any more are dropped.
const PRUNED_AT: usize = 8_192;

/// The answers at a worker.
#[derive(Debug)]
pub(super) struct Batch {
    /// Tokens that fit.
    capacity: u64,
    /// Tokens that those let in will hold at most.
    reserved: u64,
    /// Tokens that those running hold now.
    resident: u64,
    waiting: VecDeque<Arriving>,
    /// Running answers, by their last step and the order of their joining.
    running: BTreeMap<(u64, u64), Running>,
    joined: u64,
    /// Requests whose first token is written by the next step.
    fresh: Vec<usize>,
    steps: Steps,
}

#[derive(Debug)]
struct Arriving {
    answer: DecodeJob,
    /// Blocks of the prompt.
    blocks: Box<[u64]>,
    /// Set when the prompt is there.
    ready: bool,
}

/// An answer to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecodeJob {
    pub(super) request: usize,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    /// Time of its first token, if it is written.
    pub(super) first_us: Option<u64>,
}

#[derive(Debug)]
struct Running {
    answer: DecodeJob,
    /// Number of its first step.
    from: u64,
}

/// End times of steps.
#[derive(Debug, Default)]
struct Steps {
    /// Number of dropped steps.
    forgotten: u64,
    ends_us: VecDeque<u64>,
}

impl Steps {
    /// Returns the number of the step that comes next.
    fn next(&self) -> u64 {
        self.forgotten + self.ends_us.len() as u64
    }

    fn since(&self, step: u64) -> impl Iterator<Item = u64> {
        let at = step.saturating_sub(self.forgotten) as usize;
        self.ends_us.range(at..).copied()
    }

    fn forget_before(&mut self, step: u64) {
        let count = step.saturating_sub(self.forgotten);
        self.ends_us.drain(..count as usize);
        self.forgotten += count;
    }
}

impl DecodeJob {
    /// Returns the answer of a job.
    pub(super) fn of(job: &Job, first_us: Option<u64>) -> Self {
        Self {
            request: job.request,
            prompt_tokens: job.prompt_tokens,
            output_tokens: job.output_tokens.max(1),
            first_us,
        }
    }

    /// Returns the tokens that it holds at its end.
    pub(super) fn tokens(&self) -> u64 {
        u64::from(self.prompt_tokens) + u64::from(self.output_tokens)
    }

    fn written(&self) -> u64 {
        u64::from(self.first_us.is_some())
    }
}

impl Batch {
    /// Returns an empty one with room for so many tokens.
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            reserved: 0,
            resident: 0,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            joined: 0,
            fresh: Vec::new(),
            steps: Steps::default(),
        }
    }

    /// Returns how many answers are being written.
    pub(super) fn len(&self) -> u32 {
        self.running.len() as u32
    }

    /// Returns how many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the tokens of the waiting prompts.
    pub(super) fn waiting_tokens(&self) -> u64 {
        let waiting = self.waiting.iter();
        waiting
            .map(|waiting| u64::from(waiting.answer.prompt_tokens))
            .sum()
    }

    /// Returns the tokens held by the answers being written.
    pub(super) fn resident(&self) -> u64 {
        self.resident
    }

    /// Adds a request whose prompt was computed elsewhere. `ready` is set if the prompt is there already.
    pub(super) fn push(&mut self, job: Job, first_us: Option<u64>, ready: bool) {
        self.waiting.push_back(Arriving {
            answer: DecodeJob::of(&job, first_us),
            blocks: job.blocks,
            ready,
        });
    }

    /// Records the arrival of a request's prompt. Returns its blocks, if the request waits here.
    pub(super) fn arrived(&mut self, request: usize) -> Option<&[u64]> {
        let mut waiting = self.waiting.iter_mut();
        let found = waiting.find(|waiting| waiting.answer.request == request)?;
        found.ready = true;
        Some(&found.blocks)
    }

    /// Strikes a request that waits off the list.
    pub(super) fn drop_waiting(&mut self, request: usize) {
        self.waiting.retain(|waiting| waiting.answer.request != request);
    }

    /// Keeps room for an answer, if there is.
    pub(super) fn reserve(&mut self, tokens: u64) -> bool {
        let fits = self.reserved == 0 || self.reserved + tokens <= self.capacity;
        if fits {
            self.reserved += tokens;
        }
        fits
    }

    /// Lets those in whose prompts are there, in the order of their coming, until one does not fit.
    pub(super) fn admit(&mut self, reported: &mut Vec<EngineEventKind>) {
        let mut at = 0;
        while let Some(waiting) = self.waiting.get(at) {
            if !waiting.ready {
                at += 1;
                continue;
            }
            let answer = waiting.answer;
            if !self.reserve(answer.tokens()) {
                break;
            }
            self.waiting.remove(at);
            if u64::from(answer.output_tokens) > answer.written() {
                self.fresh.push(answer.request);
            }
            self.join(answer, reported);
        }
    }

    /// Begins to write an answer that room is kept for. One that has all its tokens is over with that.
    pub(super) fn join(&mut self, answer: DecodeJob, reported: &mut Vec<EngineEventKind>) {
        let left = u64::from(answer.output_tokens) - answer.written();
        if left == 0 {
            self.reserved -= answer.tokens();
            reported.push(EngineEventKind::Finished {
                request: answer.request,
                gaps: TokenGaps::default(),
            });
            return;
        }
        self.resident += u64::from(answer.prompt_tokens) + answer.written();
        let from = self.steps.next();
        self.joined += 1;
        self.running
            .insert((from + left - 1, self.joined), Running { answer, from });
    }

    /// Returns how many of the next steps have no event, if no answer joins.
    pub(super) fn quiet_steps(&self) -> u64 {
        let first_over = self.running.first_key_value().map(|((step, _), _)| *step);
        match first_over {
            Some(step) if self.fresh.is_empty() => step - self.steps.next(),
            _ => 0,
        }
    }

    /// Ends a step of the whole batch.
    pub(super) fn end_step(&mut self, now_us: u64, reported: &mut Vec<EngineEventKind>) {
        let step = self.steps.next();
        self.steps.ends_us.push_back(now_us);
        self.resident += self.running.len() as u64;
        let fresh = self.fresh.drain(..);
        reported.extend(fresh.map(|request| EngineEventKind::FirstToken { request }));
        while let Some(entry) = self.running.first_entry() {
            if entry.key().0 != step {
                break;
            }
            let Running { answer, from } = entry.remove();
            self.resident -= answer.tokens();
            self.reserved -= answer.tokens();
            let times = answer.first_us.into_iter().chain(self.steps.since(from));
            reported.push(EngineEventKind::Finished {
                request: answer.request,
                gaps: TokenGaps::of(times),
            });
        }
        if self.steps.ends_us.len().is_multiple_of(PRUNED_AT) {
            let oldest = self.running.values().map(|running| running.from).min();
            self.steps.forget_before(oldest.unwrap_or(step + 1));
        }
    }

    /// Clears everything. Returns the numbers of the requests that were there.
    pub(super) fn clear(&mut self) -> Vec<usize> {
        let emptied = std::mem::replace(self, Self::new(self.capacity));
        let running = emptied.running.into_values().map(|running| running.answer);
        let waiting = emptied.waiting.into_iter().map(|waiting| waiting.answer);
        running.chain(waiting).map(|answer| answer.request).collect()
    }
}
