//! LRU block cache of a worker with tiers: the least recently used block moves to the next tier. Knows neither tokens
//! nor time.
//!
//! A prompt is taken in from its tail, so that its head is the newest and a chain is eaten from its end, as engines do
//! it. A block is on one tier at a time; one that is used again moves to the device.

use routing::Tier;

use super::recency::{Block, Recency, TIERS};

/// The tiers by number, fastest first.
const NAMES: [Tier; TIERS] = [Tier::Device, Tier::Host, Tier::Disk];
const DEVICE: usize = 0;

/// Change of a cache, as an engine publishes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CacheEvent {
    /// A run of blocks is there, each the parent of the next.
    Stored {
        /// Blocks in the order of the prompt; at least one.
        blocks: Vec<u64>,
        /// Block before the first. `None` where the prompt begins.
        parent: Option<u64>,
        /// Their tier.
        tier: Tier,
    },
    /// Blocks are not there any more.
    Removed {
        /// Blocks in any order; at least one.
        blocks: Vec<u64>,
        /// Their tier before.
        tier: Tier,
    },
}

/// Cached part of a prompt, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Matched {
    /// Leading blocks that are on the device.
    pub(crate) device: usize,
    /// Leading blocks on the device or in host memory.
    pub(crate) host: usize,
    /// Leading blocks that are on any tier.
    pub(crate) any: usize,
    /// Number of leading blocks on any tier that are in host memory.
    pub(crate) in_host: usize,
    /// Number of leading blocks on any tier that are on disk.
    pub(crate) on_disk: usize,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct BlockCache {
    capacity: [usize; TIERS],
    recency: Recency,
}

impl BlockCache {
    /// Returns an empty cache of so many blocks on the device, in host memory and on disk. Without any on the device it
    /// stays empty.
    #[must_use]
    pub(crate) fn new(capacity: [usize; 3]) -> Self {
        Self {
            capacity,
            recency: Recency::default(),
        }
    }

    /// Returns the cached part of a prompt.
    #[must_use]
    pub(crate) fn matched(&self, blocks: &[u64]) -> Matched {
        let mut found = Matched::default();
        let mut slowest = DEVICE;
        for block in blocks {
            let Some(tier) = self.recency.tier(*block) else {
                break;
            };
            slowest = slowest.max(tier);
            found.device += usize::from(slowest == DEVICE);
            found.host += usize::from(slowest <= 1);
            found.any += 1;
            found.in_host += usize::from(tier == 1);
            found.on_disk += usize::from(tier == 2);
        }
        found
    }

    /// Marks blocks as read: those that are there become the newest of their tier.
    pub(super) fn touch(&mut self, blocks: &[u64]) {
        for block in blocks.iter().rev() {
            self.recency.touch(*block);
        }
    }

    /// Stores a prompt's blocks on the device. Returns the changes.
    pub(crate) fn insert(&mut self, blocks: &[u64], events: &mut Vec<CacheEvent>) {
        if self.capacity[DEVICE] == 0 {
            return;
        }
        let mut stored = Vec::new();
        let mut raised: [Vec<u64>; TIERS] = Default::default();
        for (at, &id) in blocks.iter().enumerate().rev() {
            let parent = at.checked_sub(1).map(|before| blocks[before]);
            let block = Block { id, parent };
            let before = self.recency.put(block, DEVICE);
            if before != Some(DEVICE) {
                stored.push(block);
            }
            if let Some(tier) = before.filter(|tier| *tier != DEVICE) {
                raised[tier].push(id);
            }
        }
        for (tier, blocks) in raised.into_iter().enumerate() {
            report_removed(blocks, tier, events);
        }
        report_stored(&stored, DEVICE, events);
        for tier in DEVICE..TIERS {
            self.shrink(tier, events);
        }
    }

    /// Moves what a tier has too much of to the next one that there is.
    fn shrink(&mut self, tier: usize, events: &mut Vec<CacheEvent>) {
        let excess = self.recency.len(tier).saturating_sub(self.capacity[tier]);
        let gone: Vec<Block> = (0..excess).map_while(|_| self.recency.pop_oldest(tier)).collect();
        report_removed(gone.iter().map(|block| block.id).collect(), tier, events);
        if let Some(next) = (tier + 1..TIERS).find(|next| self.capacity[*next] > 0) {
            for block in &gone {
                self.recency.put(*block, next);
            }
            report_stored(&gone, next, events);
        }
    }

    /// Clears the cache without an event.
    pub(super) fn clear(&mut self) {
        self.recency = Recency::default();
    }
}

fn report_removed(blocks: Vec<u64>, tier: usize, events: &mut Vec<CacheEvent>) {
    if !blocks.is_empty() {
        let tier = NAMES[tier];
        events.push(CacheEvent::Removed { blocks, tier });
    }
}

/// Collects events of blocks that come tail first, a run at a time and its head first.
fn report_stored(tail_first: &[Block], tier: usize, events: &mut Vec<CacheEvent>) {
    let tier = NAMES[tier];
    let mut run: Option<(Vec<u64>, Option<u64>)> = None;
    for block in tail_first.iter().rev() {
        match &mut run {
            Some((blocks, _)) if block.parent == blocks.last().copied() => blocks.push(block.id),
            _ => {
                let ended = run.replace((vec![block.id], block.parent));
                events.extend(ended.map(|(blocks, parent)| CacheEvent::Stored { blocks, parent, tier }));
            }
        }
    }
    events.extend(run.map(|(blocks, parent)| CacheEvent::Stored { blocks, parent, tier }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(blocks: &[u64], parent: Option<u64>, tier: Tier) -> CacheEvent {
        CacheEvent::Stored {
            blocks: blocks.to_vec(),
            parent,
            tier,
        }
    }

    fn removed(blocks: &[u64], tier: Tier) -> CacheEvent {
        CacheEvent::Removed {
            blocks: blocks.to_vec(),
            tier,
        }
    }

    fn inserted(cache: &mut BlockCache, blocks: &[u64]) -> Vec<CacheEvent> {
        let mut events = Vec::new();
        cache.insert(blocks, &mut events);
        events
    }

    #[test]
    fn a_prompt_is_stored_as_one_run_and_its_rest_after_what_was_there() {
        let mut cache = BlockCache::new([8, 0, 0]);
        assert_eq!(
            inserted(&mut cache, &[1, 2, 3]),
            [stored(&[1, 2, 3], None, Tier::Device)]
        );
        assert_eq!(
            inserted(&mut cache, &[1, 2, 4, 5]),
            [stored(&[4, 5], Some(2), Tier::Device)]
        );
        assert_eq!(inserted(&mut cache, &[1, 2]), []);
        assert_eq!(cache.matched(&[1, 2, 4, 9, 5]).any, 3);
    }

    #[test]
    fn the_oldest_chain_goes_first_and_from_its_tail() {
        let mut cache = BlockCache::new([4, 0, 0]);
        inserted(&mut cache, &[1, 2]);
        inserted(&mut cache, &[3, 4]);
        assert_eq!(
            inserted(&mut cache, &[5]),
            [stored(&[5], None, Tier::Device), removed(&[2], Tier::Device)]
        );
        cache.touch(&[1]);
        inserted(&mut cache, &[6, 7]);
        assert_eq!(cache.matched(&[1]).any, 1, "it was read since");
        assert_eq!(cache.matched(&[3, 4]).any, 0);
    }

    #[test]
    fn a_prompt_longer_than_the_cache_leaves_its_head_there() {
        let mut cache = BlockCache::new([3, 0, 0]);
        inserted(&mut cache, &[1, 2, 3, 4, 5]);
        assert_eq!(cache.matched(&[1, 2, 3, 4, 5]).any, 3);
        assert_eq!(cache.recency.len(DEVICE), 3);
    }

    #[test]
    fn blocks_evicted_from_the_device_move_down_a_tier_and_return_when_used() {
        let mut cache = BlockCache::new([2, 2, 1]);
        inserted(&mut cache, &[1, 2]);
        assert_eq!(
            inserted(&mut cache, &[3, 4]),
            [
                stored(&[3, 4], None, Tier::Device),
                removed(&[2, 1], Tier::Device),
                stored(&[1, 2], None, Tier::Host),
            ]
        );
        inserted(&mut cache, &[5]);
        let found = cache.matched(&[1, 2]);
        assert_eq!((found.device, found.host, found.any), (0, 1, 2));
        assert_eq!((found.in_host, found.on_disk), (1, 1));
        let events = inserted(&mut cache, &[1, 2]);
        assert_eq!(events[0], removed(&[1], Tier::Host));
        assert_eq!(events[1], removed(&[2], Tier::Disk));
        assert_eq!(events[2], stored(&[1, 2], None, Tier::Device));
        assert_eq!(cache.matched(&[1, 2]).device, 2);
    }

    #[test]
    fn a_tier_without_room_is_passed_over() {
        let mut cache = BlockCache::new([1, 0, 4]);
        inserted(&mut cache, &[1]);
        inserted(&mut cache, &[2]);
        let found = cache.matched(&[1]);
        assert_eq!((found.host, found.any), (0, 1));
        assert_eq!(inserted(&mut BlockCache::new([0, 4, 4]), &[1]), []);
    }
}
