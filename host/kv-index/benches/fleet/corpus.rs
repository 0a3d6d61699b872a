//! Queries of the benchmark: requests as chains of 512-token pieces, each of 32 blocks of 16 tokens.
//!
//! From the conversation trace where it is there (12,031 requests, 182,790 pieces), else sessions of like shape made
//! here. Copies of a corpus talk of other things in the same way. Tokens and names are computed when they are wanted.

use std::fs;
use std::path::Path;

use routing::{Attention, BlockEvent, EngineBlockHash, RemovedBlocks, StoredBlocks, Tier};

use crate::random::{Random, scatter};

/// Tokens a block.
pub(crate) const BLOCK: usize = 16;
/// Blocks a piece.
pub(crate) const PIECE: usize = 32;
/// Blocks an event at most: what an engine prefills in one step of 8,192 tokens.
pub(crate) const STEP: usize = 512;

/// 32 consecutive blocks of one chain: the piece of one copy. All of its ancestors are always the same.
pub(crate) type Piece = u32;

/// Requests of one copy.
#[derive(Debug)]
pub(crate) struct Corpus {
    pub(crate) source: &'static str,
    /// The pieces of each prompt, in order.
    pub(crate) requests: Vec<Vec<Piece>>,
    /// Distinct pieces.
    pub(crate) pieces: u32,
}

impl Corpus {
    /// Returns the trace at `path`, else sessions made up.
    pub(crate) fn load(path: &Path) -> Self {
        match fs::read_to_string(path) {
            Ok(text) => Self::of_trace(&text),
            Err(_) => Self::made_up(12_000),
        }
    }

    fn of_trace(text: &str) -> Self {
        let ids = |line: &str| -> Option<Vec<Piece>> {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            let ids = line["hash_ids"].as_array()?;
            ids.iter().map(|id| Piece::try_from(id.as_u64()?).ok()).collect()
        };
        let requests: Vec<Vec<Piece>> = text.lines().filter_map(ids).collect();
        let pieces = requests.iter().flatten().max().map_or(0, |last| last + 1);
        Self {
            source: "conversation trace",
            requests,
            pieces,
        }
    }

    /// Sessions behind one system prompt: half of the requests open one, the others add to one; one in 15 is long.
    pub(crate) fn made_up(requests: usize) -> Self {
        let mut random = Random::new(3);
        let mut sessions: Vec<Vec<Piece>> = Vec::new();
        let mut pieces = 1;
        let made = (0..requests).map(|_| {
            let open = sessions.is_empty() || random.below(2) == 0;
            let grown = match random.below(15) {
                0 => 60 + random.below(90) as u32,
                _ => 1 + random.below(20) as u32,
            };
            let at = match open {
                true => {
                    sessions.push(vec![0]);
                    sessions.len() - 1
                }
                false => random.below(sessions.len() as u64) as usize,
            };
            sessions[at].extend(pieces..pieces + grown);
            pieces += grown;
            sessions[at].clone()
        });
        let requests = made.collect();
        Self {
            source: "made-up sessions",
            requests,
            pieces,
        }
    }

    /// Returns a request as the given copy has it.
    pub(crate) fn request(&self, request: usize, copy: u32) -> Vec<Piece> {
        let first = copy * self.pieces;
        self.requests[request].iter().map(|piece| first + piece).collect()
    }
}

fn blocks(piece: Piece) -> std::ops::Range<u64> {
    let first = u64::from(piece) * PIECE as u64;
    first..first + PIECE as u64
}

/// Returns the engines' name of a block: they agree.
fn name(block: u64) -> EngineBlockHash {
    EngineBlockHash(scatter(block))
}

/// Adds tokens that occur nowhere else (below 2^28 blocks).
fn push_tokens(block: u64, tokens: &mut Vec<u32>) {
    let first = (block * BLOCK as u64) as u32;
    tokens.extend((0..BLOCK as u32).map(|at| (first + at).wrapping_mul(0x9e37_79b1)));
}

/// Returns the prompt that these pieces make.
pub(crate) fn prompt(pieces: &[Piece]) -> Vec<u32> {
    let mut tokens = Vec::with_capacity(pieces.len() * PIECE * BLOCK);
    for block in pieces.iter().copied().flat_map(blocks) {
        push_tokens(block, &mut tokens);
    }
    tokens
}

/// Returns the stores of the pieces of `chain` from `from` on, one prefill step after the other.
pub(crate) fn stores(chain: &[Piece], from: usize) -> impl Iterator<Item = BlockEvent> {
    let steps = (from..chain.len()).step_by(STEP / PIECE);
    steps.map(move |first| {
        let pieces = &chain[first..chain.len().min(first + STEP / PIECE)];
        let parent = first
            .checked_sub(1)
            .map(|above| name(blocks(chain[above]).end - 1));
        BlockEvent::Stored(StoredBlocks {
            hashes: pieces.iter().copied().flat_map(blocks).map(name).collect(),
            parent,
            tokens: prompt(pieces),
            block_size: BLOCK as u32,
            tier: Tier::Device,
            lora: None,
            extra_keys: Vec::new(),
            group: 0,
            attention: Attention::Full,
        })
    })
}

/// Returns the evictions of these pieces, tail first; `together` blocks an event.
pub(crate) fn removals(pieces: &[Piece], together: usize) -> impl Iterator<Item = BlockEvent> {
    let hashes: Vec<_> = pieces.iter().copied().flat_map(blocks).rev().map(name).collect();
    let starts = (0..hashes.len()).step_by(together);
    starts.map(move |at| removal(hashes[at..hashes.len().min(at + together)].to_vec()))
}

/// Returns the eviction of one block somewhere in a piece.
pub(crate) fn removal_inside(piece: Piece, at: usize) -> BlockEvent {
    removal(vec![name(blocks(piece).start + at as u64)])
}

fn removal(hashes: Vec<EngineBlockHash>) -> BlockEvent {
    BlockEvent::Removed(RemovedBlocks {
        hashes,
        tier: Some(Tier::Device),
        group: 0,
    })
}
