//! Index of a router: the server's own prefix index, fed with the events of the simulated engines, late and with
//! losses.
//!
//! A block of the trace stands in it as one block of [`INDEX_BLOCK`] tokens made from its id; what the index answers is
//! scaled back here, and no other module sees it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use kv_index::{Holder, IndexLimits, Prompt, Sent, SharedPrefixIndex, WorkerMatch};
use placement::{CacheKnowledge, PrefixMatches};
use routing::{
    Attention, BlockEvent, DpRank, EngineBlockHash, RemovedBlocks, SplitMix64, StoredBlocks, WorkerId,
};

use super::prices::uniform;
use super::spec::{Knowledge, RouterSpec};
use crate::engine::CacheEvent;
use crate::request::Request;
use crate::spec::ClusterSpec;

/// Tokens that stand for a block of the trace.
const INDEX_BLOCK: u32 = Prompt::KEY_BLOCK;
/// Most tokens expected at a worker whose events arrive soon: the server's 262,144 blocks of 16.
const SOON_REPORTED_TOKENS: u64 = 262_144 * 16;
/// Additional blocks that the index may hold beyond those of all caches.
const MORE_BLOCKS: usize = 1 << 20;

/// A prompt to be looked up, shared by the calls about one request.
#[derive(Debug)]
pub(super) struct TracePrompt {
    tokens: u32,
    prompt: Mutex<Prompt<'static>>,
}

impl TracePrompt {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            tokens: request.prompt_tokens,
            prompt: Mutex::new(Prompt::new(tokens_of(&request.blocks), None, None)),
        }
    }

    fn lend<T>(&self, query: impl FnOnce(&mut Prompt<'static>) -> T) -> T {
        query(&mut self.prompt.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reading side of the index; clones read the same index.
#[derive(Debug, Clone)]
pub(super) struct IndexReader {
    index: SharedPrefixIndex,
    /// Tokens of a block of the trace.
    block_tokens: u32,
    /// Knowledge of every worker's cache.
    knowledge: CacheKnowledge,
}

impl IndexReader {
    /// Looks up a prompt for all candidates at once. Matches are in tokens of the trace.
    pub(super) fn find_matches(&self, prompt: &TracePrompt, ids: &[WorkerId], matches: &mut PrefixMatches) {
        let look_up = |found: &mut Vec<_>| {
            prompt.lend(|chain| self.index.matches(chain, ids, found));
            for found in found {
                self.scale(found, prompt.tokens);
            }
        };
        matches.replace(look_up, |_| self.knowledge);
    }

    /// Converts a match from tokens of the index to those of the trace.
    fn scale(&self, found: &mut WorkerMatch, prompt_tokens: u32) {
        for tokens in [
            &mut found.device_tokens,
            &mut found.host_tokens,
            &mut found.any_tokens,
            &mut found.expected_tokens,
        ] {
            // The last block of a prompt may be part of one.
            *tokens = (*tokens / INDEX_BLOCK)
                .saturating_mul(self.block_tokens)
                .min(prompt_tokens);
        }
    }

    /// Returns the blocks that the index holds for a worker. `None` where it publishes no events.
    pub(super) fn held_blocks(&self, worker: WorkerId) -> Option<u64> {
        let is_live = self.knowledge == CacheKnowledge::Live;
        is_live.then(|| self.index.held_blocks(worker))
    }

    /// Returns a hash of so many of a prompt's first tokens, in whole blocks of the trace. For a shorter prompt, the
    /// hash is of all its blocks, for the last one has an id even if it is not full.
    pub(super) fn key(&self, prompt: &TracePrompt, tokens: u32) -> Option<u64> {
        prompt.lend(|chain| {
            let blocks = (tokens / self.block_tokens) as usize;
            chain.key(if tokens < prompt.tokens {
                blocks * INDEX_BLOCK as usize
            } else {
                usize::MAX
            })
        })
    }

    /// Returns the blocks of the trace that begin within so many of a prompt's first tokens.
    pub(super) fn blocks(&self, tokens: u32) -> usize {
        tokens.div_ceil(self.block_tokens) as usize
    }
}

/// The index and how it is fed.
#[derive(Debug)]
pub(super) struct IndexView {
    reader: IndexReader,
    ids: Vec<WorkerId>,
    /// Blocks that each worker's device holds.
    capacities: Vec<u64>,
    lag_us: u64,
    loss: f64,
    /// Time that sent prompts are expected; 0 for not at all.
    expect_us: u64,
    aged_us: u64,
    /// Events on their way, by the time of their arrival. As many as come within the lag.
    late: VecDeque<(u64, usize, BlockEvent)>,
    random: SplitMix64,
    lost: u64,
}

impl IndexView {
    /// Returns an empty index. `replica` seeds the losses of each router.
    pub(super) fn new(
        cluster: &ClusterSpec,
        ids: impl Iterator<Item = WorkerId>,
        block_tokens: u32,
        spec: &RouterSpec,
        replica: u32,
    ) -> Self {
        let blocks: usize = cluster
            .workers
            .iter()
            .flat_map(|worker| worker.cache_blocks)
            .sum();
        let (lag_us, loss) = match spec.knowledge {
            Knowledge::Events { lag_us, loss } => (lag_us, loss),
            Knowledge::None | Knowledge::Assumed { .. } => (0, 0.0),
        };
        let reader = IndexReader {
            index: SharedPrefixIndex::new(IndexLimits {
                max_blocks: blocks.saturating_add(MORE_BLOCKS),
            }),
            block_tokens: block_tokens.max(1),
            knowledge: match spec.knowledge {
                Knowledge::None => CacheKnowledge::Unknown,
                Knowledge::Events { .. } => CacheKnowledge::Live,
                Knowledge::Assumed { .. } => CacheKnowledge::Assumed,
            },
        };
        let device = cluster.workers.iter().map(|worker| worker.cache_blocks[0] as u64);
        Self {
            reader,
            ids: ids.collect(),
            capacities: device.collect(),
            lag_us,
            loss,
            expect_us: match spec.knowledge {
                Knowledge::None => 0,
                Knowledge::Events { .. } => spec.expect_us,
                Knowledge::Assumed { lifetime_us } => lifetime_us,
            },
            aged_us: 0,
            late: VecDeque::new(),
            random: SplitMix64::of_decision(spec.seed, replica),
            lost: 0,
        }
    }

    pub(super) fn reader(&self) -> &IndexReader {
        &self.reader
    }

    /// Returns the number of events that never came.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Receives the change of a worker's cache.
    pub(super) fn publish(&mut self, now_us: u64, worker: usize, event: &CacheEvent) {
        if self.reader.knowledge != CacheKnowledge::Live {
            return;
        }
        if self.loss > 0.0 && uniform(&mut self.random) < self.loss {
            self.lost += 1;
            return;
        }
        let event = block_event(event);
        if self.lag_us == 0 {
            self.apply(worker, &event);
        } else {
            self.late.push_back((now_us + self.lag_us, worker, event));
        }
    }

    /// Applies the events that have arrived by now, and drops expectations that did not come true. Called before a
    /// lookup.
    pub(super) fn catch_up(&mut self, now_us: u64) {
        while let Some((_, worker, event)) = self.late.pop_front_if(|(due_us, ..)| *due_us <= now_us) {
            self.apply(worker, &event);
        }
        if self.expect_us > 0 && now_us.saturating_sub(self.aged_us) >= self.expect_us {
            // After two generations nothing is left: more are not to be looked at.
            let times = ((now_us - self.aged_us) / self.expect_us).min(2);
            (0..times).for_each(|_| self.reader.index.age_expected(&self.ids));
            self.aged_us = now_us;
        }
    }

    /// Expects a request's prompt at the worker it goes to.
    pub(super) fn expect(&self, worker: usize, prompt: &TracePrompt) {
        if self.expect_us == 0 {
            return;
        }
        let is_assumed = self.reader.knowledge == CacheKnowledge::Assumed;
        let sent = Sent {
            worker: self.ids[worker],
            // The index gets the block size from events; without any it has nothing to compare with either.
            block_size: if is_assumed { INDEX_BLOCK } else { 0 },
            capacity: if is_assumed {
                self.capacities[worker]
            } else {
                SOON_REPORTED_TOKENS / u64::from(self.reader.block_tokens)
            },
        };
        prompt.lend(|chain| self.reader.index.expect(&sent, chain));
    }

    /// Drops what is known of a worker that lost its cache.
    pub(super) fn forget(&mut self, worker: usize) {
        self.late.retain(|(_, at, _)| *at != worker);
        let id = self.ids[worker];
        self.reader.index.clear(holder(id));
        self.reader.index.age_expected(&[id]);
        self.reader.index.age_expected(&[id]);
    }

    fn apply(&self, worker: usize, event: &BlockEvent) {
        self.reader.index.apply(holder(self.ids[worker]), event);
    }
}

fn holder(worker: WorkerId) -> Holder {
    Holder {
        worker,
        rank: DpRank(0),
    }
}

fn block_event(event: &CacheEvent) -> BlockEvent {
    let names = |blocks: &[u64]| blocks.iter().map(|&block| EngineBlockHash(block)).collect();
    match event {
        CacheEvent::Stored { blocks, parent, tier } => BlockEvent::Stored(StoredBlocks {
            hashes: names(blocks),
            parent: parent.map(EngineBlockHash),
            tokens: tokens_of(blocks),
            block_size: INDEX_BLOCK,
            tier: *tier,
            lora: None,
            extra_keys: Vec::new(),
            group: 0,
            attention: Attention::Full,
        }),
        CacheEvent::Removed { blocks, tier } => BlockEvent::Removed(RemovedBlocks {
            hashes: names(blocks),
            tier: Some(*tier),
            group: 0,
        }),
    }
}

/// Returns the tokens that stand for blocks: each id's two halves, and zeros.
fn tokens_of(blocks: &[u64]) -> Vec<u32> {
    let mut tokens = vec![0; blocks.len() * INDEX_BLOCK as usize];
    for (tokens, block) in tokens.chunks_exact_mut(INDEX_BLOCK as usize).zip(blocks) {
        tokens[0] = *block as u32;
        tokens[1] = (*block >> 32) as u32;
    }
    tokens
}
