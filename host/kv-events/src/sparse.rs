//! Sparse stores: stores that omit blocks, resolved by a full store of the same batch.
//!
//! vLLM's groups share one list of block hashes: at one position of a prompt all groups have the same hash and the
//! same parent (0.32: `v1/core/block_pool.py`, `cache_full_blocks`; recorded in `tests/recorded`). Some groups do not
//! keep every block: a sliding window frees blocks behind it, a state-space group keeps checkpoints. They announce the
//! token ids of a whole range and only the hashes they keep, without positions. The full-attention group announces the
//! same range of the same request in the same step. Its hashes define the positions.
//!
//! Nothing is guessed: without such a store the event is rejected. The work is bounded: candidates are found by their
//! parent, and the comparisons of one batch grow only with its length.

use std::collections::HashMap;

use routing::{BlockEvent, EngineBlockHash, StoredBlocks};

use crate::payload::DecodedBatch;
use crate::reject::{EventKind, RejectReason, RejectedEvent};

/// Events on either side that may be the full one. An engine announces the groups of a request consecutively.
const NEAR: usize = 64;
/// Comparisons per token and hash of a batch. Engines need two, or more if many prompts of a batch share a prefix.
const COMPARISONS: usize = 32;
/// Most runs that the sparse stores of a batch are split into. A state-space group has fewer checkpoints for a million
/// tokens.
const MAX_RUNS: usize = 16_384;

/// Remaining budget of one batch.
#[derive(Debug)]
struct BatchBudget {
    comparisons: usize,
    runs: usize,
}

impl BatchBudget {
    fn of(events: &[BlockEvent], sparse: &[SparseStore]) -> Self {
        let full = events.iter().filter_map(store_of);
        let stores = full.chain(sparse.iter().map(|store| &store.stored));
        let values: usize = stores.map(|store| store.tokens.len() + store.hashes.len()).sum();
        Self {
            comparisons: values.saturating_mul(COMPARISONS),
            runs: MAX_RUNS,
        }
    }

    /// Spends comparisons. Returns `None` if the budget is too small.
    fn spend(&mut self, comparisons: usize) -> Option<()> {
        self.comparisons = self.comparisons.checked_sub(comparisons)?;
        Some(())
    }
}

/// Full stores of a batch by their parents: positions among the good events, ascending.
type StoresByParent = HashMap<Option<EngineBlockHash>, Vec<usize>>;

fn store_of(event: &BlockEvent) -> Option<&StoredBlocks> {
    match event {
        BlockEvent::Stored(stored) => Some(stored),
        _ => None,
    }
}

/// A store with more blocks of tokens than hashes.
#[derive(Debug)]
pub(crate) struct SparseStore {
    /// Position in the batch, from 0.
    pub(crate) index: usize,
    /// Number of good events before it.
    pub(crate) place: usize,
    /// The event: it has fewer hashes than blocks, and extra keys for none or for each hash.
    pub(crate) stored: StoredBlocks,
}

/// Adds the resolvable stores to the batch, one store per run of neighbouring blocks, and rejects the others.
pub(crate) fn settle(batch: &mut DecodedBatch, sparse: Vec<SparseStore>) {
    if sparse.is_empty() {
        return;
    }
    let mut budget = BatchBudget::of(&batch.events, &sparse);
    let mut stores = StoresByParent::new();
    for (place, stored) in batch.events.iter().enumerate() {
        if let Some(stored) = store_of(stored) {
            stores.entry(stored.parent).or_default().push(place);
        }
    }
    let mut placed: Vec<(usize, Vec<BlockEvent>)> = Vec::new();
    for store in sparse {
        match lay_out(&batch.events, &stores, &store, &mut budget) {
            Some(laid) => placed.push(laid),
            None => batch.rejected.push(RejectedEvent {
                index: store.index,
                kind: EventKind::Stored,
                reason: RejectReason::SkippedBlocks,
            }),
        }
    }
    batch.rejected.sort();
    placed.sort_by_key(|&(place, _)| place);
    let mut settled = Vec::with_capacity(batch.events.len() + placed.len());
    let mut events = std::mem::take(&mut batch.events).into_iter();
    let mut taken = 0;
    for (place, runs) in placed {
        settled.extend(events.by_ref().take(place - taken));
        settled.extend(runs);
        taken = place;
    }
    settled.extend(events);
    batch.events = settled;
}

/// Returns the runs and their position among the good events: after the full store that names their parents. A store
/// is never moved past a removal, which may concern its blocks.
fn lay_out(
    events: &[BlockEvent],
    stores: &StoresByParent,
    sparse: &SparseStore,
    budget: &mut BatchBudget,
) -> Option<(usize, Vec<BlockEvent>)> {
    // The group keeps no block of the range.
    if sparse.stored.hashes.is_empty() {
        return Some((sparse.place, Vec::new()));
    }
    let places = stores.get(&sparse.stored.parent)?;
    let (before, after) = places.split_at(places.partition_point(|&place| place < sparse.place));
    let mut lay = |place: usize| {
        let full = store_of(events.get(place)?)?;
        SparseLayout::new(full, &sparse.stored, budget)?.runs(budget)
    };
    let nearest = sparse.place.saturating_sub(NEAR);
    let before = before.iter().rev().take_while(|place| **place >= nearest);
    if let Some(runs) = before.copied().find_map(&mut lay) {
        return Some((sparse.place, runs));
    }
    let next = events.iter().skip(sparse.place).take(NEAR);
    let stores = next.take_while(|event| store_of(event).is_some()).count();
    let after = after.iter().take_while(|place| **place < sparse.place + stores);
    let mut laid = after.map(|&place| Some((place + 1, lay(place)?)));
    laid.find_map(|laid| laid)
}

/// Mapping of a sparse store's blocks to a full one's.
struct SparseLayout<'a> {
    full: &'a StoredBlocks,
    sparse: &'a StoredBlocks,
    /// Number of the full store's blocks per block of the sparse one.
    ratio: usize,
    /// Block index of each hash of the sparse store, ascending.
    blocks: Vec<usize>,
}

impl<'a> SparseLayout<'a> {
    /// Returns `None` if the full store has another range, lacks a hash, or the budget is spent.
    fn new(full: &'a StoredBlocks, sparse: &'a StoredBlocks, budget: &mut BatchBudget) -> Option<Self> {
        if full.lora != sparse.lora || !sparse.block_size.is_multiple_of(full.block_size) {
            return None;
        }
        let ratio = usize::try_from(sparse.block_size / full.block_size).ok()?;
        let width = usize::try_from(sparse.block_size).ok()?;
        let pairs = full.tokens.iter().zip(&sparse.tokens);
        let same = pairs.take_while(|(one, other)| one == other).count();
        budget.spend(same + 1)?;
        if same < full.tokens.len().min(sparse.tokens.len()) {
            return None;
        }
        // A hash after the sparse store's own range belongs to none of its blocks.
        let within = sparse.tokens.len() / width * ratio;
        let mut names = full.hashes.iter().take(within).enumerate();
        let blocks = sparse.hashes.iter().map(|hash| {
            let (name, _) = names.find(|&(_, name)| name == hash)?;
            // The hash of a longer block is that of the last shorter one in it.
            (name + 1).is_multiple_of(ratio).then_some((name + 1) / ratio - 1)
        });
        let blocks: Option<Vec<usize>> = blocks.collect();
        budget.spend(within.min(full.hashes.len()) - names.len())?;
        Some(Self {
            full,
            sparse,
            ratio,
            blocks: blocks?,
        })
    }

    /// Returns the runs, or `None` if the batch has too many.
    fn runs(&self, budget: &mut BatchBudget) -> Option<Vec<BlockEvent>> {
        let mut runs = Vec::new();
        let mut from = 0;
        for run in self.blocks.chunk_by(|one, next| one + 1 == *next) {
            budget.runs = budget.runs.checked_sub(1)?;
            let to = from + run.len();
            runs.extend(self.run(from..to).map(BlockEvent::Stored));
            from = to;
        }
        Some(runs)
    }

    /// Returns the store of the hashes in `range`, which are neighbouring blocks.
    fn run(&self, range: std::ops::Range<usize>) -> Option<StoredBlocks> {
        let sparse = self.sparse;
        let first = *self.blocks.get(range.start)?;
        let width = usize::try_from(sparse.block_size).ok()?;
        let start = first * width;
        let tokens = sparse.tokens.get(start..start + range.len() * width)?;
        Some(StoredBlocks {
            hashes: sparse.hashes.get(range.clone())?.to_vec(),
            parent: self.parent(first),
            tokens: tokens.to_vec(),
            extra_keys: sparse
                .extra_keys
                .get(range)
                .map(<[_]>::to_vec)
                .unwrap_or_default(),
            lora: sparse.lora.clone(),
            ..*sparse
        })
    }

    /// Returns the hash of the block before `block`.
    fn parent(&self, block: usize) -> Option<EngineBlockHash> {
        match (block * self.ratio).checked_sub(1) {
            None => self.sparse.parent,
            Some(before) => self.full.hashes.get(before).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use routing::{Attention, Tier};

    use super::*;

    /// Returns a store of `blocks` one-token blocks without parent, with these hashes.
    fn store(blocks: u32, hashes: impl IntoIterator<Item = u64>) -> StoredBlocks {
        StoredBlocks {
            hashes: hashes.into_iter().map(EngineBlockHash).collect(),
            parent: None,
            tokens: (0..blocks).collect(),
            block_size: 1,
            tier: Tier::Device,
            lora: None,
            extra_keys: Vec::new(),
            group: 0,
            attention: Attention::Full,
        }
    }

    fn batch(full: Vec<StoredBlocks>, sparse: Vec<StoredBlocks>) -> (DecodedBatch, Vec<SparseStore>) {
        let place = full.len();
        let batch = DecodedBatch {
            ts_ms: None,
            dp_rank: None,
            events: full.into_iter().map(BlockEvent::Stored).collect(),
            rejected: Default::default(),
        };
        let sparse = sparse.into_iter().enumerate();
        let sparse = sparse.map(|(index, stored)| SparseStore {
            index: place + index,
            place,
            stored,
        });
        (batch, sparse.collect())
    }

    #[test]
    fn many_short_stores_after_one_long_one_cost_no_more_than_the_batch_is_long() {
        // Each sparse store's hash is the last of the full one: an unbounded search needed two billion comparisons.
        let full = store(100_000, 0..100_000);
        let (mut batch, sparse) = batch(vec![full], vec![store(2, [99_999]); 20_000]);
        let mut budget = BatchBudget::of(&batch.events, &sparse);
        let stores = StoresByParent::from([(None, vec![0])]);
        let most = budget.comparisons;
        assert_eq!(most, (200_000 + 3 * 20_000) * COMPARISONS);
        for store in &sparse {
            assert_eq!(lay_out(&batch.events, &stores, store, &mut budget), None);
        }
        assert!(most - budget.comparisons <= 20_000 * 5, "{budget:?} of {most}");
        settle(&mut batch, sparse);
        assert_eq!((batch.events.len(), batch.rejected.total()), (1, 20_000));
    }

    #[test]
    fn stores_that_all_look_alike_are_given_up_when_the_budget_is_spent() {
        // Every full store has the tokens but not the hash, so each sparse one would be compared with all near ones.
        let full = vec![store(64, 0..64); NEAR];
        let (batch, sparse) = batch(full, vec![store(64, [1_000]); 1_000]);
        let mut budget = BatchBudget::of(&batch.events, &sparse);
        let stores = StoresByParent::from([(None, (0..NEAR).collect())]);
        for store in &sparse {
            assert_eq!(lay_out(&batch.events, &stores, store, &mut budget), None);
        }
        assert!(budget.comparisons < 129, "{budget:?}");
    }

    #[test]
    fn stores_that_come_apart_too_often_are_rejected() {
        let blocks = 2 * u32::try_from(MAX_RUNS).unwrap() + 2;
        let full = store(blocks, 0..blocks.into());
        let every_other = (0..u64::from(blocks)).step_by(2);
        let (mut batch, sparse) = batch(vec![full], vec![store(blocks, every_other)]);
        settle(&mut batch, sparse);
        assert_eq!((batch.events.len(), batch.rejected.total()), (1, 1));
    }
}
