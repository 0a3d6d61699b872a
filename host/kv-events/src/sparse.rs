//! Stores that leave out blocks, laid upon a full one of the same batch.
//!
//! vLLM's groups share one list of block hashes: the hash at a place of a prompt is the same in each, and so is the
//! parent's (0.32: `v1/core/block_pool.py`, `cache_full_blocks`; recorded in `tests/recorded`). A group that does not keep
//! every block (a sliding window behind which blocks were given back, a state-space group that keeps checkpoints)
//! announces the token ids of a whole range and only the hashes it keeps, without saying where in the range they belong.
//! The full-attention group announces the same range of the same request in the same step, and tells by its hashes.
//!
//! Nothing is guessed: where no store of the batch tells, the event is rejected.

use routing::{BlockEvent, EngineBlockHash, StoredBlocks};

use crate::batch::DecodedBatch;
use crate::reject::{EventKind, RejectReason, RejectedEvent};

/// How many events on either side may be the full one. An engine announces the groups of a request one after another.
const NEAR: usize = 64;

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
    let mut placed: Vec<(usize, Vec<BlockEvent>)> = Vec::new();
    for store in sparse {
        match lay_out(&batch.events, &store) {
            Some(laid) => placed.push(laid),
            None => batch.rejected.push(RejectedEvent {
                index: store.index,
                kind: EventKind::Stored,
                reason: RejectReason::SkippedBlocks,
            }),
        }
    }
    batch.rejected.sort_by_key(|rejected| rejected.index);
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
fn lay_out(events: &[BlockEvent], sparse: &SparseStore) -> Option<(usize, Vec<BlockEvent>)> {
    // A range of which nothing is kept.
    if sparse.stored.hashes.is_empty() {
        return Some((sparse.place, Vec::new()));
    }
    let (before, after) = events.split_at_checked(sparse.place)?;
    let lay = |event: &BlockEvent| match event {
        BlockEvent::Stored(full) => Layout::new(full, &sparse.stored).map(|layout| layout.runs()),
        _ => None,
    };
    if let Some(runs) = before.iter().rev().take(NEAR).find_map(lay) {
        return Some((sparse.place, runs));
    }
    let stores = after
        .iter()
        .take(NEAR)
        .take_while(|event| matches!(event, BlockEvent::Stored(_)));
    let (distance, runs) = stores
        .enumerate()
        .find_map(|(distance, event)| lay(event).map(|runs| (distance, runs)))?;
    Some((sparse.place + distance + 1, runs))
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
    /// None where the full store is of another range, or does not have all the hashes.
    fn new(full: &'a StoredBlocks, sparse: &'a StoredBlocks) -> Option<Self> {
        let same_range = full.parent == sparse.parent
            && full.lora == sparse.lora
            && full
                .tokens
                .iter()
                .zip(&sparse.tokens)
                .all(|(one, other)| one == other);
        if !same_range || !sparse.block_size.is_multiple_of(full.block_size) {
            return None;
        }
        let ratio = usize::try_from(sparse.block_size / full.block_size).ok()?;
        let mut names = full.hashes.iter().enumerate();
        let blocks = sparse.hashes.iter().map(|hash| {
            let (name, _) = names.find(|&(_, name)| name == hash)?;
            // The hash of a longer block is that of the last shorter one in it.
            (name + 1).is_multiple_of(ratio).then_some((name + 1) / ratio - 1)
        });
        let blocks: Vec<usize> = blocks.collect::<Option<_>>()?;
        let width = usize::try_from(sparse.block_size).ok()?;
        let fits = blocks
            .last()
            .is_none_or(|&last| last < sparse.tokens.len() / width);
        fits.then_some(Self {
            full,
            sparse,
            ratio,
            blocks,
        })
    }

    fn runs(&self) -> Vec<BlockEvent> {
        let mut runs = Vec::new();
        let mut from = 0;
        for run in self.blocks.chunk_by(|one, next| one + 1 == *next) {
            let to = from + run.len();
            runs.extend(self.run(from..to).map(BlockEvent::Stored));
            from = to;
        }
        runs
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
