//! Block names of a question by engine hashes, resolved along its path.
//!
//! Most names are shared by the whole fleet and found in the forest. An engine that hashes in another way than the one that
//! stored a block first keeps aliases in its lanes: those are looked through as well, so that the hashes of every engine lead
//! to the same content.

use routing::WorkerId;

use crate::cache::Lane;
use crate::core::Core;
use crate::extent::BlockId;

/// Lookups in lanes other than the latest that resolved a name, for one path: a bound on what made-up names cost.
const MOST_LOOKUPS: u32 = 1 << 16;

/// The aliases that some engines give to blocks.
pub(crate) struct Naming<'a> {
    /// Those that have any.
    lanes: Vec<&'a Lane>,
    /// The lane that resolved the latest alias: the names of one path are mostly one engine's.
    latest: usize,
    lookups: u32,
}

impl Naming<'_> {
    /// Returns the first answer that `accept` gives for a block that an engine calls so by an alias.
    pub(crate) fn find<R>(&mut self, name: u64, mut accept: impl FnMut(BlockId) -> Option<R>) -> Option<R> {
        let mut look = |lane: &Lane| lane.alias(name).and_then(&mut accept);
        if let Some(found) = self.lanes.get(self.latest).and_then(|lane| look(lane)) {
            return Some(found);
        }
        for (at, lane) in self.lanes.iter().enumerate() {
            if at == self.latest {
                continue;
            }
            self.lookups = self.lookups.checked_sub(1)?;
            if let Some(found) = look(lane) {
                self.latest = at;
                return Some(found);
            }
        }
        None
    }
}

impl Core {
    /// Returns the aliases of these workers' caches.
    pub(crate) fn naming(&self, workers: &[WorkerId]) -> Naming<'_> {
        let caches = workers.iter().flat_map(|&worker| self.caches.ranks(worker));
        let lanes = caches.flat_map(|(_, cache)| &cache.lanes);
        let lanes = lanes.map(|lane| &self.lanes[lane.id.0 as usize]);
        Naming {
            lanes: lanes.filter(|lane| lane.has_aliases()).collect(),
            latest: 0,
            lookups: MOST_LOOKUPS,
        }
    }
}
