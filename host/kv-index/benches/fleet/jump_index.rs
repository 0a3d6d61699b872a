//! Baseline: the positional index of Dynamo's `Flash` indexer as its authors describe it: a map from (position, local
//! hash) to who holds what there, and a query that looks at every 64th position and bisects where workers drop out.
//!
//! Who holds the end of a jump is taken to hold its middle, which is wrong with holes; this corpus has none.

use std::hash::BuildHasherDefault;

use routing::{BlockEvent, WorkerId};

use crate::corpus::BLOCK;
use crate::plain_map::{Hashed, Map, chained, local_hash, mask, settle};
use crate::subject::{Depths, Subject};

const JUMP: usize = 64;

/// Holders of a block with this local hash at this position: nearly always of one chain.
#[derive(Debug)]
struct Entry {
    chain: u64,
    holders: u128,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    at: u32,
    local: u64,
    chain: u64,
}

#[derive(Debug)]
pub(crate) struct JumpIndex {
    first: Map<(u64, u64), Entry>,
    /// Other chains with the same block at the same position.
    others: Map<(u64, u64), Vec<Entry>>,
    names: Vec<Map<u64, Held>>,
}

fn key(at: usize, local: u64) -> (u64, u64) {
    (at as u64, local)
}

impl JumpIndex {
    fn insert(&mut self, worker: u32, held: Held) {
        let key = key(held.at as usize, held.local);
        let entry = self.first.entry(key).or_insert(Entry {
            chain: held.chain,
            holders: 0,
        });
        if entry.chain == held.chain {
            entry.holders |= 1 << worker;
            return;
        }
        let others = self.others.entry(key).or_default();
        match others.iter_mut().find(|entry| entry.chain == held.chain) {
            Some(entry) => entry.holders |= 1 << worker,
            None => others.push(Entry {
                chain: held.chain,
                holders: 1 << worker,
            }),
        }
    }

    fn remove(&mut self, worker: u32, held: Held) {
        let key = key(held.at as usize, held.local);
        if let Some(entry) = self.first.get_mut(&key)
            && entry.chain == held.chain
        {
            entry.holders &= !(1 << worker);
            if entry.holders == 0 {
                self.first.remove(&key);
            }
        } else if let Some(entry) = self.others.get_mut(&key).and_then(|entries| entries.first_mut()) {
            entry.holders &= !(1 << worker);
        }
    }

    fn holders(&self, queried: &Hashed, at: usize) -> u128 {
        let key = key(at, queried.local[at]);
        match self.first.get(&key) {
            Some(entry) if entry.chain == queried.chain[at] => entry.holders,
            _ => {
                let others = self.others.get(&key).map_or(&[][..], Vec::as_slice);
                let found = others.iter().find(|entry| entry.chain == queried.chain[at]);
                found.map_or(0, |entry| entry.holders)
            }
        }
    }

    /// Bisects for the position where each worker drops out. `alive` hold everything before `low`, none of those that
    /// are gone holds position `high`.
    fn bisect(&self, queried: &Hashed, low: usize, high: usize, gone: u128, out: &mut [u32]) {
        if gone == 0 {
            return;
        }
        if low == high {
            settle(gone, low as u32, out);
            return;
        }
        let middle = low.midpoint(high);
        let held = self.holders(queried, middle);
        self.bisect(queried, low, middle, gone & !held, out);
        self.bisect(queried, middle + 1, high, gone & held, out);
    }
}

impl Subject for JumpIndex {
    type Query = Hashed;

    const NAME: &'static str = "jump index";

    fn empty(blocks: usize) -> Self {
        Self {
            first: Map::with_capacity_and_hasher(blocks, BuildHasherDefault::default()),
            others: Map::default(),
            names: std::iter::repeat_with(Map::default).take(128).collect(),
        }
    }

    fn apply(&mut self, worker: u32, event: &BlockEvent) {
        match event {
            BlockEvent::Stored(stored) => {
                let names = &self.names[worker as usize];
                let mut parent = stored.parent.and_then(|parent| names.get(&parent.0).copied());
                for (name, tokens) in stored.hashes.iter().zip(stored.tokens.chunks_exact(BLOCK)) {
                    let local = local_hash(tokens);
                    let held = Held {
                        at: parent.map_or(0, |parent| parent.at + 1),
                        local,
                        chain: chained(parent.map(|parent| parent.chain), local),
                    };
                    self.insert(worker, held);
                    self.names[worker as usize].insert(name.0, held);
                    parent = Some(held);
                }
            }
            BlockEvent::Removed(removed) => {
                for name in &removed.hashes {
                    if let Some(held) = self.names[worker as usize].remove(&name.0) {
                        self.remove(worker, held);
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
        let end = queried.local.len();
        let mut alive = mask(workers);
        let mut low = 0;
        while low < end && alive != 0 {
            let high = end.min(low + JUMP) - 1;
            let held = self.holders(queried, high);
            self.bisect(queried, low, high, alive & !held, &mut out.blocks);
            alive &= held;
            low = high + 1;
        }
        settle(alive, end as u32, &mut out.blocks);
    }

    fn remove_worker(&mut self, worker: u32) {
        for (_, held) in std::mem::take(&mut self.names[worker as usize]) {
            self.remove(worker, held);
        }
    }
}
