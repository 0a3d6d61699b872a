//! Thread-safe index: the only module of this crate with a lock.
//!
//! Queries are short and on the request path; changes are frequent and can wait. A writer holds the lock for a few
//! microseconds at a time and lets waiting readers go first each time.

use std::sync::Arc;

use routing::{BlockEvent, ObjectEvent, StoreId, WorkerId};

use crate::core::IndexCore;
use crate::count::{Applied, IndexLimits, IndexStats, ObjectsApplied, PART};
use crate::expected::{Prediction, PredictionProgress, Sent};
use crate::holder::Holder;
use crate::holdings::WorkerHoldings;
use crate::ingest::blocks_of;
use crate::prompt::Prompt;
use crate::query::{IndexQuery, RankMatch, WorkerMatch};
use crate::reader_preferring::ReaderPreferringLock;
use crate::snapshot::{CacheExport, CacheSnapshot, ImportedEnds};
use crate::survey::{PrefixSurvey, SurveyLimits, SurveyWork};

/// Runs that the eviction hand examines at a time.
const RUNS_AT_A_TIME: u32 = 64;

/// Shared handle on the index. A reader may see a long event half applied: it then misses blocks, but sees no block
/// that is not held.
#[derive(Debug, Clone)]
pub struct SharedPrefixIndex {
    core: Arc<ReaderPreferringLock<IndexCore>>,
}

impl SharedPrefixIndex {
    /// Creates an empty index.
    #[must_use]
    pub fn new(limits: IndexLimits) -> Self {
        Self {
            core: Arc::new(ReaderPreferringLock::new(IndexCore::new(limits))),
        }
    }

    /// Applies one event of a cache. Returns the counts of its blocks.
    pub fn apply(&self, holder: Holder, event: &BlockEvent) -> Applied {
        self.apply_batch(holder, std::slice::from_ref(event))
    }

    /// Applies events of one cache in order. Returns the counts of their blocks.
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

    /// Clears one cache, in constant time.
    pub fn clear(&self, holder: Holder) -> Applied {
        self.core.write(|core| core.clear(holder))
    }

    /// Clears all ranks of a worker. Later events of that worker would be indexed again: stop its feed first.
    pub fn remove_worker(&self, worker: WorkerId) -> Applied {
        self.core.write(|core| core.remove_worker(worker))
    }

    /// Replaces `out` by the matches of a prompt, one per worker, in the order of `workers`.
    pub fn matches(&self, prompt: &mut Prompt<'_>, workers: &[WorkerId], out: &mut Vec<WorkerMatch>) {
        self.core
            .read(|core| core.matches(&mut IndexQuery::Prompt(prompt), workers, out));
    }

    /// Replaces `out` by the matches of a prompt, one per rank known from events.
    pub fn rank_matches(&self, prompt: &mut Prompt<'_>, workers: &[WorkerId], out: &mut Vec<RankMatch>) {
        self.core
            .read(|core| core.rank_matches(&mut IndexQuery::Prompt(prompt), workers, out));
    }

    /// Matches like [`rank_matches`](Self::rank_matches), by [sequence hashes](crate::SEQUENCE_HASH_SEED) of blocks of
    /// one size.
    pub fn rank_matches_by_sequence_hash(
        &self,
        hashes: &[u64],
        block_size: u32,
        workers: &[WorkerId],
        out: &mut Vec<RankMatch>,
    ) {
        let mut query = IndexQuery::Sequence { hashes, block_size };
        self.core.read(|core| core.rank_matches(&mut query, workers, out));
    }

    /// Matches like [`rank_matches`](Self::rank_matches), by engine hashes. A hash leads to the content that the
    /// block's first holder, or one of the `namers`, stored under it. All holders of that content are found, whatever
    /// their own hashes.
    pub fn rank_matches_by_engine_hash(
        &self,
        hashes: &[u64],
        namers: &[WorkerId],
        workers: &[WorkerId],
        out: &mut Vec<RankMatch>,
    ) {
        let mut query = IndexQuery::Names {
            names: hashes,
            namers,
        };
        self.core.read(|core| core.rank_matches(&mut query, workers, out));
    }

    /// Predicts a prompt's blocks at the worker it was just sent to, at most as many as its cache holds. The prediction
    /// ends after two calls of [`age_expected`](Self::age_expected) without another such request. Returns `None` if
    /// nothing is predicted.
    pub fn expect(&self, sent: &Sent, prompt: &mut Prompt<'_>) -> Option<Prediction> {
        let mut progress = PredictionProgress::default();
        while self.core.write(|core| core.expect(sent, prompt, &mut progress)) {}
        progress.prediction(sent.worker)
    }

    /// Takes a prediction back, because the worker did not get the prompt. Blocks that were predicted before stay.
    pub fn retract(&self, mut prediction: Prediction, prompt: &mut Prompt<'_>) {
        while self.core.write(|core| core.retract(&mut prediction, prompt)) {}
    }

    /// Drops predictions of these workers that no request has renewed since the last call.
    pub fn age_expected(&self, workers: &[WorkerId]) {
        for &worker in workers {
            self.core.write(|core| core.age_expected(worker));
        }
    }

    /// Returns the workers that have predictions.
    #[must_use]
    pub fn expected_workers(&self) -> Vec<WorkerId> {
        self.core.read(|core| core.expected.keys().copied().collect())
    }

    /// Returns a worker's block size in tokens, if known.
    #[must_use]
    pub fn block_size(&self, worker: WorkerId) -> Option<u32> {
        self.core.read(|core| core.block_size(worker))
    }

    /// Binds a store to the workers that share it. `shards` is the number of objects of a complete block. With `None`
    /// it is the number of kinds seen since the store was cleared, so one object is enough until the second kind is
    /// seen. At most 128 kinds of shards and one model are supported.
    ///
    /// After a new kind, and after a change of `shards`, the objects are joined again a few at a time, with each change
    /// and in [`gc_step`](Self::gc_step). Until then they count for no worker.
    pub fn bind_store(&self, store: StoreId, shards: Option<u32>, workers: &[WorkerId]) {
        self.core.write(|core| core.bind_store(store, shards, workers));
    }

    /// Applies events of a store's objects.
    pub fn apply_objects(&self, store: StoreId, events: &[ObjectEvent]) -> ObjectsApplied {
        let mut applied = ObjectsApplied::default();
        for events in events.chunks(PART) {
            applied += self.core.write(|core| core.apply_objects(store, events));
        }
        applied
    }

    /// Removes a store's objects; its binding is kept.
    pub fn clear_store(&self, store: StoreId) {
        self.core.write(|core| core.clear_store(store, false));
    }

    /// Removes a store.
    pub fn remove_store(&self, store: StoreId) {
        self.core.write(|core| core.clear_store(store, true));
    }

    /// Returns `true` if a store's objects count for no worker because they are ambiguous: of several models, or of
    /// more than 128 kinds of shards. Clearing the store ends the ambiguity.
    #[must_use]
    pub fn is_ambiguous(&self, store: StoreId) -> bool {
        self.core.read(|core| core.is_unclear_store(store))
    }

    /// Frees unused memory, and joins objects again, in a small step. Returns `true` if there is more to do. Changes do
    /// that as well; this is for times without changes.
    pub fn gc_step(&self) -> bool {
        self.core.write(|core| core.gc_step_idle(RUNS_AT_A_TIME))
    }

    /// Returns the blocks that all ranks of a worker hold, counted per tier and group.
    #[must_use]
    pub fn held_blocks(&self, worker: WorkerId) -> u64 {
        self.core.read(|core| core.held_blocks(worker))
    }

    /// Returns the blocks that a worker holds, by tier.
    #[must_use]
    pub fn holdings(&self, worker: WorkerId) -> WorkerHoldings {
        self.core.read(|core| core.holdings(worker))
    }

    /// Returns the prefixes with the most continuations. It takes the lock for short steps only; all of them take
    /// milliseconds, so call it beside the request path.
    #[must_use]
    pub fn survey(&self, limits: SurveyLimits) -> PrefixSurvey {
        let mut work = SurveyWork::new(limits);
        while self.core.read(|core| work.step(core)) {}
        work.into_result()
    }

    /// Returns the contents of a cache, without its predictions; `None` if it has none. At most `most_blocks` blocks
    /// are read, and [`CacheSnapshot::is_whole`] is set if that was all. It takes the lock for short steps only, so
    /// no event of this cache may be applied meanwhile.
    #[must_use]
    pub fn export(&self, holder: Holder, most_blocks: usize) -> Option<CacheSnapshot> {
        let mut work = CacheExport::new(holder, most_blocks);
        loop {
            while self.core.read(|core| work.step(core)) {}
            if !work.search() {
                break;
            }
        }
        work.into_result()
    }

    /// Replaces the contents of a cache by a snapshot of the same cache in another index. Returns the counts of its
    /// blocks. Invalid parts of a snapshot are left out, and counted as malformed.
    pub fn import(&self, holder: Holder, snapshot: &CacheSnapshot) -> Applied {
        let (mut applied, is_valid) = self.core.write(|core| core.begin_import(holder, snapshot));
        let mut ends = ImportedEnds::of(snapshot);
        for chain in snapshot.chains.iter().take_while(|_| is_valid) {
            applied += self
                .core
                .write(|core| core.import_chain(holder, chain, &mut ends));
        }
        applied
    }

    /// Returns the current state.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        self.core.read(|core| core.stats())
    }
}
