//! Resolution of engine hashes along the path of a query.
//!
//! Most names are shared by the whole fleet and found in the forest. An engine that hashes differently from the
//! block's first holder has aliases in its lanes. These are searched as well, so the hashes of every engine lead to
//! the same content.

use routing::WorkerId;

use crate::cache::HolderLane;
use crate::core::IndexCore;
use crate::extent::BlockId;

/// Most lookups per path in lanes other than the one that resolved the latest alias. This bounds the cost of false
/// names.
const MOST_LOOKUPS: u32 = 1 << 16;

/// Aliases of some engines.
pub(crate) struct AliasLookup<'a> {
    /// Lanes that have aliases.
    lanes: Vec<&'a HolderLane>,
    /// The lane that resolved the latest alias: the names of one path are mostly those of one engine.
    latest: usize,
    lookups: u32,
}

impl AliasLookup<'_> {
    /// Returns the first result of `accept` for a block with this alias.
    pub(crate) fn find<R>(&mut self, name: u64, mut accept: impl FnMut(BlockId) -> Option<R>) -> Option<R> {
        let mut look = |lane: &HolderLane| lane.alias(name).and_then(&mut accept);
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

impl IndexCore {
    /// Returns the aliases of these workers' caches.
    pub(crate) fn naming(&self, workers: &[WorkerId]) -> AliasLookup<'_> {
        let caches = workers.iter().flat_map(|&worker| self.caches.ranks(worker));
        let lanes = caches.flat_map(|(_, cache)| &cache.lanes);
        let lanes = lanes.map(|lane| &self.lanes[lane.id.0 as usize]);
        AliasLookup {
            lanes: lanes.filter(|lane| lane.has_aliases()).collect(),
            latest: 0,
            lookups: MOST_LOOKUPS,
        }
    }
}
