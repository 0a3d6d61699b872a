//! Stores that leave out blocks, laid upon a full one of the same batch.
//!
//! vLLM's groups share one list of block hashes: the hash at a place of a prompt is the same in each, and so is the
//! parent's (0.32: `v1/core/block_pool.py`, `cache_full_blocks`; recorded in `tests/recorded`). A group that does not keep
//! every block (a sliding window behind which blocks were given back, a state-space group that keeps checkpoints)
//! announces the token ids of a whole range and only the hashes it keeps, without saying where in the range they belong.
//! The full-attention group announces the same range of the same request in the same step, and tells by its hashes.
//!
//! Nothing is guessed: where no store of the batch tells, the event is rejected. Nor is a batch compared without end: candidates
//! are found by their parent, and what the comparisons of one batch may cost grows with its length only.

use std::collections::HashMap;

use routing::{BlockEvent, EngineBlockHash, StoredBlocks};

use crate::batch::DecodedBatch;
use crate::reject::{EventKind, RejectReason, RejectedEvent};

/// How many events on either side may be the full one. An engine announces the groups of a request one after another.
const NEAR: usize = 64;
/// Comparisons for each token and hash of a batch. An engine's take two, more where many prompts of it begin alike.
const COMPARISONS: usize = 32;
/// Stores that the sparse ones of a batch may come apart into. A state-space group's checkpoints of a million tokens are fewer.
const MAX_RUNS: usize = 16_384;

/// What may still be spent on one batch.
#[derive(Debug)]
struct Budget {
    comparisons: usize,
    runs: usize,
}

impl Budget {
    fn of(events: &[BlockEvent], sparse: &[SparseStore]) -> Self {
        let full = events.iter().filter_map(store_of);
        let stores = full.chain(sparse.iter().map(|store| &store.stored));
        let values: usize = stores.map(|store| store.tokens.len() + store.hashes.len()).sum();
        Self {
            comparisons: values.saturating_mul(COMPARISONS),
            runs: MAX_RUNS,
        }
    }

    /// Spends comparisons; none where there are not enough.
    fn spend(&mut self, comparisons: usize) -> Option<()> {
        self.comparisons = self.comparisons.checked_sub(comparisons)?;
        Some(())
    }
}

/// The full stores of a batch by their parents: places among the good events, ascending.
type Stores = HashMap<Option<EngineBlockHash>, Vec<usize>>;

fn store_of(event: &BlockEvent) -> Option<&StoredBlocks> {
    match event {
        BlockEvent::Stored(stored) => Some(stored),
        _ => None,
    }
}

/// A store with the tokens of more blocks than it has hashes.
#[derive(Debug)]
pub(crate) struct SparseStore {
    /// Its place in the batch, from 0.
    pub(crate) index: usize,
    /// How many good events were read before it.
    pub(crate) place: usize,
    /// The event; fewer hashes than its tokens make blocks, and extra keys for none or for each hash.
    pub(crate) stored: StoredBlocks,
}

/// Puts what can be laid out into the batch, as one store a run of neighbouring blocks, and rejects the others.
pub(crate) fn settle(batch: &mut DecodedBatch, sparse: Vec<SparseStore>) {
    if sparse.is_empty() {
        return;
    }
    let mut budget = Budget::of(&batch.events, &sparse);
    let mut stores = Stores::new();
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

/// Where among the good events the runs belong, and the runs: after the full store that names their parents. Past a
/// removal no store is moved, since it may be of its blocks.
fn lay_out(
    events: &[BlockEvent],
    stores: &Stores,
    sparse: &SparseStore,
    budget: &mut Budget,
) -> Option<(usize, Vec<BlockEvent>)> {
    // A range of which nothing is kept.
    if sparse.stored.hashes.is_empty() {
        return Some((sparse.place, Vec::new()));
    }
    let places = stores.get(&sparse.stored.parent)?;
    let (before, after) = places.split_at(places.partition_point(|&place| place < sparse.place));
    let mut lay = |place: usize| {
        let full = store_of(events.get(place)?)?;
        Layout::new(full, &sparse.stored, budget)?.runs(budget)
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

/// A sparse store's blocks upon a full one's.
struct Layout<'a> {
    full: &'a StoredBlocks,
    sparse: &'a StoredBlocks,
    /// The full store's blocks in one of the sparse one's.
    ratio: usize,
    /// Which block of its range each of the sparse store's hashes is, ascending.
    blocks: Vec<usize>,
}

impl<'a> Layout<'a> {
    /// None where the full store is of another range, or does not have all the hashes, or where the budget is spent.
    fn new(full: &'a StoredBlocks, sparse: &'a StoredBlocks, budget: &mut Budget) -> Option<Self> {
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
        // A hash behind the sparse store's own range would be of no block of it.
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

    /// The runs; none where the batch has had its share of them.
    fn runs(&self, budget: &mut Budget) -> Option<Vec<BlockEvent>> {
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

    /// The store of the hashes in `range`, which are of neighbouring blocks.
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

    /// The hash of the block before one of the range's.
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

    /// A store of one-token blocks after none: `blocks` tokens, of which these hashes are kept.
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
        // Each sparse store's hash is the last of the full one: looked for to its end, it cost two billion comparisons.
        let full = store(100_000, 0..100_000);
        let (mut batch, sparse) = batch(vec![full], vec![store(2, [99_999]); 20_000]);
        let mut budget = Budget::of(&batch.events, &sparse);
        let stores = Stores::from([(None, vec![0])]);
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
        // Every full store has the tokens, and none the hash: each sparse one would be compared with all that are near.
        let full = vec![store(64, 0..64); NEAR];
        let (batch, sparse) = batch(full, vec![store(64, [1_000]); 1_000]);
        let mut budget = Budget::of(&batch.events, &sparse);
        let stores = Stores::from([(None, (0..NEAR).collect())]);
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
