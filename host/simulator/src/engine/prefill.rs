//! Prefill queue of a worker: waiting prompts, and those that its steps compute.
//!
//! Without chunked prefill, a step computes one whole prompt. With it, a step computes a fixed number of tokens: first
//! the rest of the prompts that have begun, then the next prompts in order.

use std::collections::VecDeque;

use super::job::{Job, Reuse};
use super::order::{self, Waiting};
use crate::spec::QueueOrder;

/// A prompt at a worker.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) job: Job,
    /// Set when all blocks to fetch are there.
    pub(super) ready: bool,
    /// Predicted time alone, when it came, in microseconds.
    pub(super) takes_us: u64,
    /// Cached part, once it was looked up.
    pub(super) reuse: Option<Reuse>,
    /// Tokens computed or reused.
    pub(super) done: u32,
    /// `done` when the step under way has ended.
    pub(super) until: u32,
}

/// Part of a prompt that a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Set if nothing of the prompt was computed before.
    pub(super) first: bool,
}

impl Prompt {
    /// Returns a prompt that has just come.
    pub(super) fn new(job: Job, ready: bool, takes_us: u64) -> Self {
        Self {
            job,
            ready,
            takes_us,
            reuse: None,
            done: 0,
            until: 0,
        }
    }

    /// Takes the prompt from the queue. So much of it need not be computed.
    pub(super) fn begin(&mut self, reuse: Reuse) {
        self.reuse = Some(reuse);
        self.done = self.job.start(reuse);
        self.until = self.done;
    }

    /// Returns the rest of the prompt after the step under way.
    pub(super) fn rest(&self) -> Piece {
        Piece {
            start: self.until,
            end: self.job.prompt_tokens,
            first: false,
        }
    }

    /// Plans up to so many of its tokens for the next step.
    pub(super) fn plan(&mut self, tokens: u32) -> Piece {
        let start = self.done;
        self.until = start.saturating_add(tokens).min(self.job.prompt_tokens);
        let reused = self.reuse.unwrap_or_default().tokens();
        Piece {
            start,
            end: self.until,
            first: start <= reused,
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Prompts {
    order: QueueOrder,
    waiting: VecDeque<Prompt>,
    /// Begun prompts, in the order of their beginning.
    pub(super) begun: Vec<Prompt>,
}

impl Prompts {
    pub(super) fn new(order: QueueOrder) -> Self {
        Self {
            order,
            waiting: VecDeque::new(),
            begun: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, prompt: Prompt) {
        self.waiting.push_back(prompt);
    }

    /// Returns whether a shorter prompt interrupts a longer one.
    pub(super) fn is_preemptive(&self) -> bool {
        self.order == QueueOrder::ShortestLeft
    }

    /// Returns how many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the tokens of the waiting prompts, without those known to be cached.
    pub(super) fn waiting_tokens(&self) -> u64 {
        let left = |prompt: &Prompt| {
            let reused = prompt.reuse.unwrap_or_default().tokens();
            u64::from(prompt.job.prompt_tokens.saturating_sub(reused))
        };
        self.waiting.iter().map(left).sum()
    }

    /// Returns the time of the waiting prompts one after the other, in microseconds.
    pub(super) fn backlog_us(&self) -> u64 {
        self.waiting.iter().map(|prompt| prompt.takes_us).sum()
    }

    /// Returns the waiting prompt of this number.
    pub(super) fn find(&mut self, request: usize) -> Option<&mut Prompt> {
        self.waiting
            .iter_mut()
            .find(|prompt| prompt.job.request == request)
    }

    /// Returns the place of the one that goes next, and the prompt.
    pub(super) fn next(&self, now_us: u64) -> Option<(usize, &Prompt)> {
        let ready = self.waiting.iter().enumerate();
        let ready = ready
            .filter(|(_, prompt)| prompt.ready)
            .map(|(at, prompt)| Waiting {
                at,
                takes_us: prompt.takes_us,
                arrived_us: prompt.job.arrived_us,
            });
        let at = order::next(self.order, now_us, ready)?;
        Some((at, &self.waiting[at]))
    }

    /// Takes one out of the queue.
    pub(super) fn take(&mut self, at: usize) -> Option<Prompt> {
        self.waiting.remove(at)
    }

    /// Ends the step. Returns the prompts that are computed to their end.
    pub(super) fn end_step(&mut self) -> Vec<Prompt> {
        for prompt in &mut self.begun {
            prompt.done = prompt.until;
        }
        let is_over = |prompt: &mut Prompt| prompt.done == prompt.job.prompt_tokens;
        self.begun.extract_if(.., is_over).collect()
    }

    /// Clears everything. Returns the numbers of the requests that were there.
    pub(super) fn clear(&mut self) -> Vec<usize> {
        let begun = self.begun.drain(..);
        begun
            .chain(self.waiting.drain(..))
            .map(|prompt| prompt.job.request)
            .collect()
    }
}
