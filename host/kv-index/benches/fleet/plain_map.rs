//! Baseline: a map from chained hash to the workers that hold the block, and per worker one from the engine's name to
//! that hash, without which removals cannot be done. 128 workers at most; one tier; no holes, names or namespaces to
//! care for.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use routing::{BlockEvent, WorkerId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::corpus::BLOCK;
use crate::subject::{Depths, Subject};

/// Hasher for keys that are hashes already.
#[derive(Debug, Default)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(32) ^ number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<AsIs>>;

/// Returns XXH3 of one block's tokens.
pub(crate) fn local_hash(tokens: &[u32]) -> u64 {
    let mut bytes = [0; 4 * BLOCK];
    for (bytes, token) in bytes.chunks_exact_mut(4).zip(tokens) {
        bytes.copy_from_slice(&token.to_le_bytes());
    }
    xxh3_64_with_seed(&bytes, 1337)
}

/// Returns the hash of a chain that goes on from `parent` by one block.
pub(crate) fn chained(parent: Option<u64>, local: u64) -> u64 {
    let Some(parent) = parent else { return local };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&parent.to_le_bytes());
    bytes[8..].copy_from_slice(&local.to_le_bytes());
    xxh3_64_with_seed(&bytes, 1337)
}

/// A prompt whose hashes are computed with the first question.
#[derive(Debug)]
pub(crate) struct Hashed {
    tokens: Vec<u32>,
    pub(crate) local: Vec<u64>,
    pub(crate) chain: Vec<u64>,
}

impl Hashed {
    pub(crate) fn new(tokens: Vec<u32>) -> Self {
        Self {
            tokens,
            local: Vec::new(),
            chain: Vec::new(),
        }
    }

    pub(crate) fn hash(&mut self) {
        if !self.chain.is_empty() {
            return;
        }
        self.local.extend(self.tokens.chunks_exact(BLOCK).map(local_hash));
        let mut parent = None;
        self.chain.extend(self.local.iter().map(|&local| {
            let hash = chained(parent, local);
            parent = Some(hash);
            hash
        }));
    }
}

impl Hashed {
    pub(crate) fn touch(&mut self) -> u64 {
        self.hash();
        self.local
            .iter()
            .chain(&self.chain)
            .fold(0, |sum, hash| sum ^ hash)
    }
}

/// Returns the workers as bits.
pub(crate) fn mask(workers: &[WorkerId]) -> u128 {
    workers.iter().fold(0, |mask, worker| mask | 1 << worker.0)
}

#[derive(Debug)]
pub(crate) struct PlainMap {
    holders: Map<u64, u128>,
    names: Vec<Map<u64, u64>>,
}

impl PlainMap {
    fn drop_one(holders: &mut Map<u64, u128>, worker: u32, hash: u64) {
        if let Some(mask) = holders.get_mut(&hash) {
            *mask &= !(1 << worker);
            if *mask == 0 {
                holders.remove(&hash);
            }
        }
    }
}

impl Subject for PlainMap {
    type Query = Hashed;

    const NAME: &'static str = "plain map";

    fn empty(blocks: usize) -> Self {
        Self {
            holders: Map::with_capacity_and_hasher(blocks, BuildHasherDefault::default()),
            names: std::iter::repeat_with(Map::default).take(128).collect(),
        }
    }

    fn apply(&mut self, worker: u32, event: &BlockEvent) {
        let names = &mut self.names[worker as usize];
        match event {
            BlockEvent::Stored(stored) => {
                let mut parent = stored.parent.and_then(|parent| names.get(&parent.0).copied());
                for (name, tokens) in stored.hashes.iter().zip(stored.tokens.chunks_exact(BLOCK)) {
                    let hash = chained(parent, local_hash(tokens));
                    *self.holders.entry(hash).or_insert(0) |= 1 << worker;
                    names.insert(name.0, hash);
                    parent = Some(hash);
                }
            }
            BlockEvent::Removed(removed) => {
                for name in &removed.hashes {
                    if let Some(hash) = names.remove(&name.0) {
                        Self::drop_one(&mut self.holders, worker, hash);
                    }
                }
            }
            BlockEvent::Cleared => self.remove_worker(worker),
        }
    }

    fn queried(tokens: Vec<u32>) -> Self::Query {
        Hashed::new(tokens)
    }

    fn touch(queried: &mut Self::Query) -> u64 {
        queried.touch()
    }

    fn depths(&self, queried: &mut Self::Query, workers: &[WorkerId], out: &mut Depths) {
        queried.hash();
        out.blocks.clear();
        out.blocks.resize(workers.len(), 0);
        let mut alive = mask(workers);
        let mut depth = 0;
        for hash in &queried.chain {
            let held = self.holders.get(hash).copied().unwrap_or(0);
            settle(alive & !held, depth, &mut out.blocks);
            alive &= held;
            if alive == 0 {
                return;
            }
            depth += 1;
        }
        settle(alive, depth, &mut out.blocks);
    }

    fn remove_worker(&mut self, worker: u32) {
        for (_, hash) in std::mem::take(&mut self.names[worker as usize]) {
            Self::drop_one(&mut self.holders, worker, hash);
        }
    }
}

/// Sets the depth of those workers (numbered from 0 in the answer).
pub(crate) fn settle(mut workers: u128, depth: u32, out: &mut [u32]) {
    while workers != 0 {
        out[workers.trailing_zeros() as usize] = depth;
        workers &= workers - 1;
    }
}
