//! The index itself, for one writer at a time: engine hash -> our prefix hash per holder, and the holders per prefix.
//!
//! It must not know about threads (`shared.rs` does). A holder that is emptied is set aside whole, which takes it out of
//! every answer at once whatever it held; what it held is swept a little with each later change, so that no single
//! change takes long.

use std::collections::{BTreeMap, HashMap, hash_map};

use routing::{Attention, BlockEvent, DpRank, EngineBlockHash, RemovedBlocks, StoredBlocks, Tier, WorkerId};

use crate::chain::{ChainHasher, HashKeyed, Namespace, PrefixHash};
use crate::content::Contents;
use crate::count::{Applied, IndexLimits, IndexStats};
use crate::query::{Lane, PrefixQuery, WorkerMatch, keys_of, walk};
use crate::shared::Holder;
use crate::slots::Slots;

const TIERS: [Tier; 4] = [Tier::Device, Tier::Host, Tier::Disk, Tier::Shared];

/// Blocks swept with every change, besides two for each block that the change brings: sweeping then always overtakes.
const SWEEP_AT_LEAST: usize = 64;
/// Blocks swept at once where the bound would otherwise refuse a store: about a millisecond.
const SWEEP_AT_LIMIT: usize = 8192;

/// One block of one holder, as its engine names it.
#[derive(Debug, Clone, Copy)]
struct HeldBlock {
    prefix: PrefixHash,
    /// One bit per tier, in the order of [`TIERS`]. None set: the engine used the hash for two contents.
    tiers: u8,
}

type HeldBlocks = HashMap<EngineBlockHash, HeldBlock, HashKeyed>;

/// One cache.
#[derive(Debug)]
struct Cache {
    slot: u32,
    block_size: u32,
    blocks: HeldBlocks,
}

/// What an emptied cache held, on its way out.
#[derive(Debug)]
struct Sweep {
    slot: u32,
    blocks: hash_map::IntoIter<EngineBlockHash, HeldBlock>,
}

#[derive(Debug)]
pub(crate) struct Core {
    limits: IndexLimits,
    /// Ordered, so that a worker's ranks are neighbours.
    caches: BTreeMap<Holder, Cache>,
    contents: Contents,
    slots: Slots,
    sweeps: Vec<Sweep>,
    /// Blocks in `caches` and `sweeps`.
    blocks: usize,
    chain: ChainHasher,
    applied: Applied,
}

impl Core {
    pub(crate) fn new(limits: IndexLimits) -> Self {
        Self {
            limits,
            caches: BTreeMap::new(),
            contents: Contents::default(),
            slots: Slots::default(),
            sweeps: Vec::new(),
            blocks: 0,
            chain: ChainHasher::default(),
            applied: Applied::default(),
        }
    }

    pub(crate) fn apply(&mut self, holder: Holder, event: &BlockEvent) -> Applied {
        let mut applied = Applied::default();
        let changed = match event {
            BlockEvent::Stored(stored) => {
                self.store(holder, stored, &mut applied);
                stored.hashes.len()
            }
            BlockEvent::Removed(removed) => {
                self.remove(holder, removed, &mut applied);
                removed.hashes.len()
            }
            BlockEvent::Cleared => return self.clear(holder),
        };
        self.applied += applied;
        self.sweep(changed.saturating_mul(2).saturating_add(SWEEP_AT_LEAST));
        applied
    }

    pub(crate) fn clear(&mut self, holder: Holder) -> Applied {
        let cleared = self.caches.remove(&holder).map_or(0, |cache| {
            let held = cache.blocks.len();
            self.sweeps.push(Sweep {
                slot: cache.slot,
                blocks: cache.blocks.into_iter(),
            });
            held as u64
        });
        let applied = Applied {
            cleared,
            ..Applied::default()
        };
        self.applied += applied;
        self.sweep(SWEEP_AT_LEAST);
        applied
    }

    pub(crate) fn remove_worker(&mut self, worker: WorkerId) -> Applied {
        let ranks: Vec<Holder> = self.ranks(worker).map(|(&holder, _)| holder).collect();
        let mut applied = Applied::default();
        for holder in ranks {
            applied += self.clear(holder);
        }
        applied
    }

    fn ranks(&self, worker: WorkerId) -> impl Iterator<Item = (&Holder, &Cache)> {
        let rank = |rank| Holder {
            worker,
            rank: DpRank(rank),
        };
        self.caches.range(rank(0)..=rank(u16::MAX))
    }

    pub(crate) fn matches(&self, query: &PrefixQuery<'_>, workers: &[WorkerId], out: &mut Vec<WorkerMatch>) {
        out.clear();
        out.resize(workers.len(), WorkerMatch::default());
        let mut lanes: Vec<Lane> = Vec::with_capacity(workers.len());
        for (row, &worker) in workers.iter().enumerate() {
            lanes.extend(self.ranks(worker).map(|(_, cache)| Lane {
                row,
                slot: cache.slot,
                block_size: cache.block_size,
            }));
        }
        walk(&self.contents, query, &mut lanes, self.slots.words(), out);
    }

    pub(crate) fn held_blocks(&self, worker: WorkerId) -> u64 {
        self.ranks(worker)
            .map(|(_, cache)| cache.blocks.len() as u64)
            .sum()
    }

    pub(crate) fn stats(&self) -> IndexStats {
        IndexStats {
            distinct_blocks: self.contents.len(),
            blocks: self.blocks,
            sweeping: self.sweeps.iter().map(|sweep| sweep.blocks.len()).sum(),
            holders: self.caches.len(),
            applied: self.applied,
        }
    }

    fn store(&mut self, holder: Holder, stored: &StoredBlocks, applied: &mut Applied) {
        let Some(mut prefix) = self.admit(holder, stored, applied) else {
            return;
        };
        let namespace = Namespace::of(stored.lora.as_ref());
        let count = stored.hashes.len();
        if self.blocks.saturating_add(count) > self.limits.max_blocks {
            self.sweep(SWEEP_AT_LIMIT);
        }
        let slots = &mut self.slots;
        let cache = self.caches.entry(holder).or_insert_with(|| Cache {
            slot: slots.take(),
            block_size: stored.block_size,
            blocks: HeldBlocks::default(),
        });
        let tier = bit(stored.tier);
        let blocks = stored
            .hashes
            .iter()
            .zip(stored.tokens.chunks_exact(stored.block_size as usize));
        for (place, (&hash, tokens)) in blocks.enumerate() {
            let extra = self.chain.extra(keys_of(&stored.extra_keys, place), namespace);
            prefix = self.chain.next(prefix, tokens, extra);
            match cache.blocks.get_mut(&hash) {
                Some(held) if held.prefix != prefix || held.tiers == 0 => {
                    // Which of the two a later parent or removal means cannot be known: trust neither.
                    for tier in tiers(held.tiers) {
                        self.contents.take(held.prefix, cache.slot, tier);
                    }
                    held.tiers = 0;
                    applied.ambiguous += 1;
                    continue;
                }
                Some(held) if held.tiers & tier != 0 => {
                    applied.known += 1;
                    continue;
                }
                Some(held) => held.tiers |= tier,
                None if self.blocks >= self.limits.max_blocks => {
                    // The rest could never match either: this block is missing before them.
                    applied.over_limit += (count - place) as u64;
                    break;
                }
                None => {
                    cache.blocks.insert(hash, HeldBlock { prefix, tiers: tier });
                    self.blocks += 1;
                }
            }
            self.contents.add(prefix, cache.slot, stored.tier);
            applied.stored += 1;
        }
        self.forget_if_empty(holder);
    }

    /// The prefix that the blocks go on from; none where they cannot be indexed, and then they are counted.
    fn admit(&mut self, holder: Holder, stored: &StoredBlocks, applied: &mut Applied) -> Option<PrefixHash> {
        let count = stored.hashes.len();
        let width = stored.block_size as usize;
        let keys_fit = stored.extra_keys.is_empty() || stored.extra_keys.len() == count;
        let cache = self.caches.get(&holder);
        let refused = if !indexed_group(stored.group) || stored.attention != Attention::Full {
            &mut applied.skipped_group
        } else if width == 0 || count.checked_mul(width) != Some(stored.tokens.len()) || !keys_fit {
            &mut applied.malformed
        } else if cache.is_some_and(|cache| cache.block_size != stored.block_size) {
            &mut applied.other_block_size
        } else {
            let parent = match stored.parent {
                None => Some(
                    self.chain
                        .root(stored.block_size, Namespace::of(stored.lora.as_ref())),
                ),
                Some(parent) => cache.and_then(|cache| cache.prefix(parent)),
            };
            if parent.is_some() {
                return parent;
            }
            &mut applied.unknown_parent
        };
        *refused += count as u64;
        None
    }

    fn remove(&mut self, holder: Holder, removed: &RemovedBlocks, applied: &mut Applied) {
        if !indexed_group(removed.group) {
            applied.skipped_group += removed.hashes.len() as u64;
            return;
        }
        let Some(cache) = self.caches.get_mut(&holder) else {
            applied.absent += removed.hashes.len() as u64;
            return;
        };
        let leaving = removed.tier.map_or(u8::MAX, bit);
        for hash in &removed.hashes {
            let Some(held) = cache
                .blocks
                .get_mut(hash)
                .filter(|held| held.tiers & leaving != 0)
            else {
                applied.absent += 1;
                continue;
            };
            for tier in tiers(held.tiers & leaving) {
                self.contents.take(held.prefix, cache.slot, tier);
            }
            held.tiers &= !leaving;
            applied.removed += 1;
            if held.tiers == 0 {
                cache.blocks.remove(hash);
                self.blocks -= 1;
            }
        }
        self.forget_if_empty(holder);
    }

    /// A cache without blocks says nothing, not even a block size.
    fn forget_if_empty(&mut self, holder: Holder) {
        if let std::collections::btree_map::Entry::Occupied(entry) = self.caches.entry(holder)
            && entry.get().blocks.is_empty()
        {
            self.slots.give_back(entry.remove().slot);
        }
    }

    /// Takes up to `budget` blocks of emptied caches out of the contents.
    fn sweep(&mut self, budget: usize) {
        for _ in 0..budget {
            let Some(sweep) = self.sweeps.last_mut() else {
                return;
            };
            match sweep.blocks.next() {
                Some((_, held)) => {
                    for tier in tiers(held.tiers) {
                        self.contents.take(held.prefix, sweep.slot, tier);
                    }
                    self.blocks -= 1;
                }
                None => {
                    self.slots.give_back(sweep.slot);
                    self.sweeps.pop();
                }
            }
        }
    }
}

impl Cache {
    /// What a block of this cache stands for; none where it is not held or ambiguous.
    fn prefix(&self, hash: EngineBlockHash) -> Option<PrefixHash> {
        self.blocks
            .get(&hash)
            .filter(|held| held.tiers != 0)
            .map(|held| held.prefix)
    }
}

/// Hybrid models announce each of their KV-cache groups; the first one's chain is followed for now. A removal in another
/// group names the same hashes and must not touch this one.
fn indexed_group(group: u32) -> bool {
    group == 0
}

fn bit(tier: Tier) -> u8 {
    match tier {
        Tier::Device => 1,
        Tier::Host => 2,
        Tier::Disk => 4,
        Tier::Shared => 8,
    }
}

fn tiers(bits: u8) -> impl Iterator<Item = Tier> {
    TIERS.into_iter().filter(move |&tier| bits & bit(tier) != 0)
}
