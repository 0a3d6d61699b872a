//! Scheduler: assigns blocks to sequences and decides the work of each step. A pure state machine: the caller
//! (`core_loop.rs`) reports the begin and the end of a step, so it has no clock or socket.
//!
//! It follows vLLM's scheduler, simplified: decoding sequences go first, then one prompt at a time is computed, first
//! come first served. A step's evictions are announced before its new blocks, in one batch at its end.

use std::collections::{HashMap, VecDeque};

use tokio::sync::mpsc;

use crate::cache::{BlockCache, BlockId};
use crate::config::MockConfig;
use crate::cost::CostModel;
use crate::event::CacheEvent;
use crate::sequence::{Output, Sequence, Submission};
use crate::stats::MockStats;

/// A step in progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    /// Duration in engine milliseconds.
    pub(crate) millis: f64,
    /// Prompt tokens computed in it.
    chunk: usize,
}

/// Result of a step.
#[derive(Debug, Default)]
pub(crate) struct StepResult {
    /// Events to publish as one batch, unless empty.
    pub(crate) events: Vec<CacheEvent>,
    /// Tokens to deliver after that.
    pub(crate) outputs: Vec<(mpsc::Sender<Output>, Output)>,
}

/// Sequences, their blocks and their order.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: Limits,
    cost: CostModel,
    seed: u64,
    hash_seed: u64,
    cache: BlockCache,
    /// First events of the next batch.
    pending: Vec<CacheEvent>,
    waiting: VecDeque<Sequence>,
    prefilling: Option<Sequence>,
    decoding: Vec<Sequence>,
    /// Sequences with blocks for KV cache from another engine that has not arrived.
    receiving: Vec<Sequence>,
    /// Sequences whose KV cache has arrived; they continue when there is room.
    arrived: VecDeque<Sequence>,
    /// Blocks of finished prompts that another engine has still to fetch.
    kept: HashMap<u64, Vec<BlockId>>,
    stats: MockStats,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    block_size: usize,
    cache_blocks: u32,
    chunk: usize,
    running: usize,
    waiting: usize,
}

impl Scheduler {
    pub(crate) fn new(config: &MockConfig) -> Self {
        Self {
            limits: Limits {
                block_size: config.block_size as usize,
                cache_blocks: config.cache_blocks,
                chunk: config.chunk_tokens.map_or(usize::MAX, |tokens| tokens as usize),
                running: config.max_running,
                waiting: config.max_waiting,
            },
            cost: config.cost,
            seed: config.seed,
            hash_seed: config.hash_seed,
            cache: BlockCache::new(config.cache_blocks),
            pending: Vec::new(),
            waiting: VecDeque::new(),
            prefilling: None,
            decoding: Vec::new(),
            receiving: Vec::new(),
            arrived: VecDeque::new(),
            kept: HashMap::new(),
            stats: MockStats::default(),
        }
    }

    /// Queues the requests of one answer, all or none.
    pub(crate) fn submit_all(&mut self, submissions: Vec<Submission>) -> bool {
        if self.waiting.len() + submissions.len() > self.limits.waiting {
            return false;
        }
        submissions.into_iter().all(|submission| self.submit(submission))
    }

    /// Queues a request; drops it and returns `false` if too many are queued.
    pub(crate) fn submit(&mut self, submission: Submission) -> bool {
        if self.waiting.len() >= self.limits.waiting {
            return false;
        }
        let mut sequence = Sequence::new(submission, self.seed);
        sequence.hash_blocks(sequence.tokens.len(), self.limits.block_size, self.hash_seed);
        self.waiting.push_back(sequence);
        self.stats.requests += 1;
        true
    }

    /// Clears the prefix cache; returns `false` if anything runs. The next step announces it, as in vLLM.
    pub(crate) fn reset_prefix_cache(&mut self) -> bool {
        let cleared = self.cache.clear();
        if cleared {
            self.pending.push(CacheEvent::Cleared);
        }
        cleared
    }

    /// Restarts like a new process: without sequences, cache and counters.
    pub(crate) fn restart(&mut self, hash_seed: Option<u64>) {
        self.hash_seed = hash_seed.unwrap_or(self.hash_seed);
        self.cache = BlockCache::new(self.limits.cache_blocks);
        self.pending.clear();
        self.waiting.clear();
        self.prefilling = None;
        self.decoding.clear();
        self.receiving.clear();
        self.arrived.clear();
        self.kept.clear();
        self.stats = MockStats::default();
    }

    /// Returns the counters and levels, except those of the publisher and the faults.
    pub(crate) fn stats(&self) -> MockStats {
        MockStats {
            running: self.decoding.len() as u64 + u64::from(self.prefilling.is_some()),
            waiting: (self.waiting.len() + self.receiving.len() + self.arrived.len()) as u64,
            transfers_waiting: self.receiving.len() as u64,
            abandoned: self.abandoned(),
            pinned_blocks: self.pinned_blocks(),
            blocks_held: self.cache.held() as u64,
            blocks_used: self.cache.used() as u64,
            evictions: self.cache.evictions(),
            ..self.stats
        }
    }

    /// Decides the next step; `None` if there is nothing to do.
    pub(crate) fn begin_step(&mut self) -> Option<Step> {
        self.drop_abandoned();
        self.reserve_decode_slots();
        self.resume_arrived();
        self.admit();
        let decode = self.cost.decode_ms(self.decoding.len());
        let Some(sequence) = &mut self.prefilling else {
            return (!self.decoding.is_empty()).then_some(Step {
                millis: decode,
                chunk: 0,
            });
        };
        let chunk = (sequence.tokens.len() - sequence.computed).min(self.limits.chunk);
        let first = !std::mem::replace(&mut sequence.begun, true);
        let end = sequence.computed + chunk;
        let prefill = self.cost.prefill_ms(sequence.computed, end, first);
        Some(Step {
            millis: decode + prefill,
            chunk,
        })
    }

    /// Ends the step: its blocks are full, its tokens are available.
    pub(crate) fn finish_step(&mut self, step: Step) -> StepResult {
        let mut result = StepResult {
            events: std::mem::take(&mut self.pending),
            outputs: Vec::new(),
        };
        for mut sequence in std::mem::take(&mut self.decoding) {
            sequence.computed += 1;
            self.announce(&mut sequence, &mut result);
            self.advance(sequence, &mut result);
        }
        if let Some(mut sequence) = self.prefilling.take() {
            sequence.computed += step.chunk;
            self.announce(&mut sequence, &mut result);
            if sequence.computed == sequence.tokens.len() {
                self.advance(sequence, &mut result);
            } else {
                self.prefilling = Some(sequence);
            }
        }
        result
    }

    /// Generates a token; the sequence continues decoding unless it was the last.
    fn advance(&mut self, mut sequence: Sequence, result: &mut StepResult) {
        let (to, output) = sequence.generate();
        self.stats.generated_tokens += 1;
        if output.finish.is_some() {
            self.end(sequence);
        } else {
            self.decoding.push(sequence);
        }
        result.outputs.push((to, output));
    }

    /// Makes full blocks findable.
    fn announce(&mut self, sequence: &mut Sequence, result: &mut StepResult) {
        let full = sequence.computed / self.limits.block_size;
        let known = sequence.announced;
        if full <= known {
            return;
        }
        sequence.hash_blocks(sequence.computed, self.limits.block_size, self.hash_seed);
        for block in known..full {
            self.cache.fill(sequence.blocks[block], sequence.hashes[block]);
        }
        let stored = sequence.stored(known, full, self.limits.block_size);
        result.events.push(CacheEvent::Stored(stored));
        sequence.announced = full;
    }

    /// Frees the sequences of disconnected clients.
    fn drop_abandoned(&mut self) {
        let prefilling = self.prefilling.take_if(|sequence| sequence.client_left());
        let decoding = self.decoding.extract_if(.., |sequence| sequence.client_left());
        let mut abandoned: Vec<_> = decoding.chain(prefilling).collect();
        abandoned.extend(self.drop_unreceived());
        for sequence in &abandoned {
            self.cache.release(&sequence.blocks);
        }
        self.stats.cancelled += (abandoned.len() + self.drop_waiting()) as u64;
    }

    /// Gives every decoding sequence a block for its next token; preempts the newest if there is none.
    fn reserve_decode_slots(&mut self) {
        let mut index = 0;
        while let Some(sequence) = self.decoding.get_mut(index) {
            if sequence.computed / self.limits.block_size >= sequence.blocks.len() {
                let Some(block) = self.cache.take(&mut self.pending) else {
                    self.preempt_newest();
                    continue;
                };
                sequence.blocks.push(block);
            }
            index += 1;
        }
    }

    /// Moves the newest sequence back to the head of the queue, without its blocks.
    fn preempt_newest(&mut self) {
        let Some(mut sequence) = self.prefilling.take().or_else(|| self.decoding.pop()) else {
            return;
        };
        self.cache.release(&sequence.blocks);
        sequence.blocks.clear();
        (sequence.computed, sequence.announced, sequence.begun) = (0, 0, false);
        self.stats.preemptions += 1;
        self.waiting.push_front(sequence);
    }

    /// Starts the next prompt, if the one before is done and there is room. Sequences that wait for KV cache only take
    /// their blocks.
    fn admit(&mut self) {
        while self.prefilling.is_none() && self.decoding.len() < self.limits.running {
            let Some(sequence) = self.admit_next() else {
                return;
            };
            self.prefilling = self.receive(sequence);
        }
    }

    /// Gives the next prompt its blocks; `None` without a prompt or room.
    fn admit_next(&mut self) -> Option<Sequence> {
        let sequence = self.waiting.front_mut()?;
        let tokens = sequence.tokens.len();
        sequence.hash_blocks(tokens, self.limits.block_size, self.hash_seed);
        // The last token is always computed: its output is the first token of the answer.
        let most = (tokens - 1) / self.limits.block_size;
        let hits = self.cache.matched(&sequence.hashes[..most]);
        let fresh = tokens.div_ceil(self.limits.block_size) - hits;
        let hashes = &sequence.hashes[..hits];
        sequence.blocks = self.cache.acquire(hashes, fresh, &mut self.pending)?;
        sequence.computed = hits * self.limits.block_size;
        sequence.announced = hits;
        if sequence.cached_tokens.is_none() {
            sequence.cached_tokens = Some(u32::try_from(sequence.computed).unwrap_or(u32::MAX));
            self.stats.prompt_tokens += sequence.prompt_len() as u64;
            self.stats.cached_tokens += sequence.computed as u64;
        }
        self.waiting.pop_front()
    }
}

mod handover;
#[cfg(test)]
mod tests;
