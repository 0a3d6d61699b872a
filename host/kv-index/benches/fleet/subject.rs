//! Subjects of the measurement, among them the index.

use kv_index::{Holder, IndexLimits, Prompt, SharedPrefixIndex, WorkerMatch};
use routing::{BlockEvent, DpRank, WorkerId};

use crate::corpus::BLOCK;

/// An index of who holds which prefix.
pub(crate) trait Subject {
    /// Prompt with its computed hashes.
    type Query;

    const NAME: &'static str;

    /// Returns an empty subject, with room for that many distinct blocks.
    fn empty(blocks: usize) -> Self;

    fn apply(&mut self, worker: u32, event: &BlockEvent);

    /// Returns a query in which nothing is hashed yet.
    fn queried(tokens: Vec<u32>) -> Self::Query;

    /// Hashes all of it, if it is not, and reads the hashes: as if they had just been computed.
    fn touch(queried: &mut Self::Query) -> u64;

    /// Finds the blocks that each of the workers holds from the prompt's start.
    fn depths(&self, queried: &mut Self::Query, workers: &[WorkerId], out: &mut Depths);

    fn remove_worker(&mut self, worker: u32);
}

/// Depths of the workers, and the work needed to find them.
#[derive(Debug, Default)]
pub(crate) struct Depths {
    pub(crate) blocks: Vec<u32>,
    pub(crate) matches: Vec<WorkerMatch>,
}

/// Ours.
#[derive(Debug, Clone)]
pub(crate) struct Ours(pub(crate) SharedPrefixIndex);

pub(crate) fn holder(worker: u32) -> Holder {
    Holder {
        worker: WorkerId(worker),
        rank: DpRank(0),
    }
}

impl Subject for Ours {
    type Query = Prompt<'static>;

    const NAME: &'static str = "ours";

    fn empty(blocks: usize) -> Self {
        Self(SharedPrefixIndex::new(IndexLimits { max_blocks: blocks }))
    }

    fn apply(&mut self, worker: u32, event: &BlockEvent) {
        self.0.apply(holder(worker), event);
    }

    fn queried(tokens: Vec<u32>) -> Self::Query {
        Prompt::new(tokens, None, None)
    }

    fn touch(queried: &mut Self::Query) -> u64 {
        queried
            .hashes(BLOCK as u32, usize::MAX)
            .iter()
            .fold(0, |sum, hash| sum ^ hash)
    }

    fn depths(&self, queried: &mut Self::Query, workers: &[WorkerId], out: &mut Depths) {
        self.0.matches(queried, workers, &mut out.matches);
        out.blocks.clear();
        let blocks = |found: &WorkerMatch| found.device_tokens / BLOCK as u32;
        out.blocks.extend(out.matches.iter().map(blocks));
    }

    fn remove_worker(&mut self, worker: u32) {
        self.0.remove_worker(WorkerId(worker));
    }
}
