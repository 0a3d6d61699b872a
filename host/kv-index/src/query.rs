//! Answering a query: one walk along the prompt's chain, for all workers at once.

use routing::ExtraKey;

use crate::chain::{ChainHasher, Namespace};
use crate::content::Contents;

/// A prompt to be found. Only its complete blocks can match.
#[derive(Debug, Clone, Copy)]
pub struct PrefixQuery<'a> {
    /// The whole prompt.
    pub tokens: &'a [u32],
    /// The adapter's name; none for the base model.
    pub lora: Option<&'a str>,
    /// The request's `cache_salt`; engines mix it into the first block.
    pub cache_salt: Option<&'a str>,
}

/// How many of the prompt's first tokens one worker holds, at its best rank. Cumulative: device <= host <= any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerMatch {
    /// All of them in the accelerator's memory.
    pub device_tokens: u32,
    /// All of them there or in host memory.
    pub host_tokens: u32,
    /// All of them on some tier.
    pub any_tokens: u32,
}

impl WorkerMatch {
    fn raise(&mut self, depth: [u32; 3]) {
        self.device_tokens = self.device_tokens.max(depth[0]);
        self.host_tokens = self.host_tokens.max(depth[1]);
        self.any_tokens = self.any_tokens.max(depth[2]);
    }
}

/// One cache that is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    /// Where in the answer it counts.
    pub(crate) row: usize,
    pub(crate) slot: u32,
    /// Tokens a block, above 0.
    pub(crate) block_size: u32,
}

/// Walks the chain of each block size that occurs among the lanes. `words`: how many words a slot set may have.
pub(crate) fn walk(
    contents: &Contents,
    query: &PrefixQuery<'_>,
    lanes: &mut [Lane],
    words: usize,
    out: &mut [WorkerMatch],
) {
    lanes.sort_unstable_by_key(|lane| lane.block_size);
    for lanes in lanes.chunk_by(|a, b| a.block_size == b.block_size) {
        let mut alive = Alive::new(lanes, words);
        walk_chain(contents, query, lanes[0].block_size, &mut alive);
        for lane in lanes {
            out[lane.row].raise(alive.depth[lane.slot as usize]);
        }
    }
}

/// Which slots still match, per cumulative tier, and how far the others did.
#[derive(Debug)]
struct Alive {
    words: Vec<[u64; 3]>,
    /// In tokens, by slot.
    depth: Vec<[u32; 3]>,
}

impl Alive {
    fn new(lanes: &[Lane], words: usize) -> Self {
        let mut alive = Self {
            words: vec![[0; 3]; words],
            depth: vec![[0; 3]; words * 64],
        };
        for lane in lanes {
            alive.words[(lane.slot / 64) as usize] = {
                let word = alive.words[(lane.slot / 64) as usize][0] | 1 << (lane.slot % 64);
                [word; 3]
            };
        }
        alive
    }

    /// Keeps those that `holds` names for a word; the others matched `depth` tokens. Answers whether any is left.
    fn keep(&mut self, depth: u32, holds: impl Fn(usize) -> [u64; 3]) -> bool {
        let mut left = 0;
        for (index, word) in self.words.iter_mut().enumerate() {
            if word[2] == 0 {
                continue;
            }
            let held = holds(index);
            for tier in 0..3 {
                let mut dropped = word[tier] & !held[tier];
                word[tier] &= held[tier];
                while dropped != 0 {
                    self.depth[index * 64 + dropped.trailing_zeros() as usize][tier] = depth;
                    dropped &= dropped - 1;
                }
            }
            left |= word[2];
        }
        left != 0
    }
}

fn walk_chain(contents: &Contents, query: &PrefixQuery<'_>, block_size: u32, alive: &mut Alive) {
    let mut chain = ChainHasher::default();
    let mut prefix = chain.root(block_size, Namespace::named(query.lora));
    let mut extra = query.cache_salt.map(|salt| chain.salt(salt));
    let mut depth: u32 = 0;
    for block in query.tokens.chunks_exact(block_size as usize) {
        prefix = chain.next(prefix, block, extra.take());
        let Some(content) = contents.get(prefix) else {
            break;
        };
        if !alive.keep(depth, |word| content.cumulative(word)) {
            return;
        }
        depth = depth.saturating_add(block_size);
    }
    alive.keep(depth, |_| [0; 3]);
}

/// The extra keys of an event's block, by its place; empty where the event has none.
pub(crate) fn keys_of(extra_keys: &[Vec<ExtraKey>], block: usize) -> &[ExtraKey] {
    extra_keys.get(block).map_or(&[], Vec::as_slice)
}
