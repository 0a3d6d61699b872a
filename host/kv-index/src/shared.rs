//! The index as many threads see it. The only file of this crate with a lock.
//!
//! Questions are short and come in the middle of requests, changes are many and may wait: who writes does so for a few
//! microseconds at a time and, before each time, lets those go first who wait to read.

use std::sync::Arc;

use routing::{BlockEvent, DpRank, ObjectEvent, StoreId, WorkerId};

use crate::core::Core;
use crate::count::{Applied, IndexLimits, IndexStats, ObjectsApplied};
use crate::expected::Sent;
use crate::ingest::{PART, blocks_of};
use crate::polite::PoliteLock;
use crate::prompt::Prompt;
use crate::query::{Question, RankMatch, WorkerMatch};

/// Runs looked at by the reclaiming hand at a time.
const RUNS_AT_A_TIME: u32 = 64;

/// One KV cache: every data-parallel rank of a worker has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// The worker.
    pub worker: WorkerId,
    /// Its rank; 0 where there is only one.
    pub rank: DpRank,
}

/// A handle on the index; clones share it. A reader may see a long event half applied: it then misses blocks, and sees
/// none that is not held.
#[derive(Debug, Clone)]
pub struct SharedPrefixIndex {
    core: Arc<PoliteLock<Core>>,
}

impl SharedPrefixIndex {
    /// An empty index.
    #[must_use]
    pub fn new(limits: IndexLimits) -> Self {
        Self {
            core: Arc::new(PoliteLock::new(Core::new(limits))),
        }
    }

    /// Takes in one event of one cache; answers what became of its blocks.
    pub fn apply(&self, holder: Holder, event: &BlockEvent) -> Applied {
        self.apply_batch(holder, std::slice::from_ref(event))
    }

    /// Takes in events of one cache, in order; answers what became of their blocks.
    pub fn apply_batch(&self, holder: Holder, events: &[BlockEvent]) -> Applied {
        let mut applied = Applied::default();
        let (mut rest, mut from) = (events, 0);
        while !rest.is_empty() {
            self.core.write(|core| {
                let mut blocks = 0;
                while let [event, later @ ..] = rest
                    && blocks < PART
                {
                    let (part, next) = core.apply_part(holder, event, from);
                    applied += part;
                    blocks += next.unwrap_or_else(|| blocks_of(event)) - from;
                    from = next.unwrap_or(0);
                    if next.is_none() {
                        rest = later;
                    }
                }
            });
        }
        applied
    }

    /// Forgets what one cache holds. Takes the same short time whatever that is.
    pub fn clear(&self, holder: Holder) -> Applied {
        self.core.write(|core| core.clear(holder))
    }

    /// Forgets what all ranks of a worker hold. Later events of that worker would be indexed again: stop its feed first.
    pub fn remove_worker(&self, worker: WorkerId) -> Applied {
        self.core.write(|core| core.remove_worker(worker))
    }

    /// How much of the prompt each worker holds: `out` is replaced by one match per worker, in the order asked.
    pub fn matches(&self, prompt: &mut Prompt<'_>, workers: &[WorkerId], out: &mut Vec<WorkerMatch>) {
        self.core
            .read(|core| core.matches(&mut Question::Prompt(prompt), workers, out));
    }

    /// How much of the prompt each cache holds: `out` is replaced by one match for each rank that events told of.
    pub fn rank_matches(&self, prompt: &mut Prompt<'_>, workers: &[WorkerId], out: &mut Vec<RankMatch>) {
        self.core
            .read(|core| core.rank_matches(&mut Question::Prompt(prompt), workers, out));
    }

    /// As [`rank_matches`](Self::rank_matches), by [sequence hashes](crate::SEQUENCE_HASH_SEED) of blocks of one size.
    pub fn rank_matches_by_sequence_hash(
        &self,
        hashes: &[u64],
        block_size: u32,
        workers: &[WorkerId],
        out: &mut Vec<RankMatch>,
    ) {
        let mut question = Question::Sequence { hashes, block_size };
        self.core
            .read(|core| core.rank_matches(&mut question, workers, out));
    }

    /// As [`rank_matches`](Self::rank_matches), by the names that engines give the blocks. A name leads to the content that
    /// the block's first holder, or one of the `namers`, stored under it; who holds that content is found whatever it calls it.
    pub fn rank_matches_by_engine_hash(
        &self,
        hashes: &[u64],
        namers: &[WorkerId],
        workers: &[WorkerId],
        out: &mut Vec<RankMatch>,
    ) {
        let mut question = Question::Names {
            names: hashes,
            namers,
        };
        self.core
            .read(|core| core.rank_matches(&mut question, workers, out));
    }

    /// Expects a prompt's blocks at the worker that it was just sent to, until two calls of
    /// [`age_expected`](Self::age_expected) have passed since the last such request.
    pub fn expect(&self, sent: &Sent, prompt: &mut Prompt<'_>) {
        let mut next = Some(0);
        while let Some(from) = next {
            next = self
                .core
                .write(|core| core.expect(sent, prompt, from, from + PART));
        }
    }

    /// Drops what was expected of these workers before the last call and not since.
    pub fn age_expected(&self, workers: &[WorkerId]) {
        for &worker in workers {
            self.core.write(|core| core.age_expected(worker));
        }
    }

    /// Tokens a block at a worker, as far as it is known.
    #[must_use]
    pub fn block_size(&self, worker: WorkerId) -> Option<u32> {
        self.core.read(|core| core.block_size(worker))
    }

    /// Says who shares a store. `shards`: objects that make a block complete; none: as many kinds as were ever seen, so
    /// that until the second kind is seen one is enough. At most 128 kinds are told apart, and one model's objects.
    pub fn bind_store(&self, store: StoreId, shards: Option<u32>, workers: &[WorkerId]) {
        self.core.write(|core| core.bind_store(store, shards, workers));
    }

    /// Takes in what a store says of its objects.
    pub fn apply_objects(&self, store: StoreId, events: &[ObjectEvent]) -> ObjectsApplied {
        let mut applied = ObjectsApplied::default();
        for events in events.chunks(PART) {
            applied += self.core.write(|core| core.apply_objects(store, events));
        }
        applied
    }

    /// Forgets a store's objects; its workers stay bound.
    pub fn clear_store(&self, store: StoreId) {
        self.core.write(|core| core.clear_store(store, false));
    }

    /// Forgets a store.
    pub fn remove_store(&self, store: StoreId) {
        self.core.write(|core| core.clear_store(store, true));
    }

    /// Gives back memory that nothing needs any more, a little at a time; answers whether there is more. Changes do that
    /// as well: this is for when there are none.
    pub fn tend(&self) -> bool {
        self.core.write(|core| core.tend_all(RUNS_AT_A_TIME))
    }

    /// Blocks that all ranks of a worker hold, each tier and group for itself.
    #[must_use]
    pub fn held_blocks(&self, worker: WorkerId) -> u64 {
        self.core.read(|core| core.held_blocks(worker))
    }

    /// The index at this moment.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        self.core.read(|core| core.stats())
    }
}
