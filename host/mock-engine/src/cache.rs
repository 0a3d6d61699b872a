//! Paged prefix cache: blocks with reference counts, found by hash, evicted least recently used first. The order of
//! evictions is vLLM's (0.32, as recorded): blocks without findable contents are used first. A sequence frees its
//! blocks tail first, so a chain is evicted from its end. Independent of tokens and time.

use std::collections::{BTreeMap, HashMap};

use crate::event::CacheEvent;

/// Index of a block.
pub(crate) type BlockId = usize;

#[derive(Debug, Default)]
struct CacheBlock {
    references: u32,
    /// Hash of its content, once it is full.
    hash: Option<u64>,
    /// Key in `idle`, while the block is there.
    freed_at: u64,
}

/// The cache. As in vLLM, a block that is computed twice is held (and announced) twice.
#[derive(Debug)]
pub(crate) struct BlockCache {
    blocks: Vec<CacheBlock>,
    /// Unused blocks without findable contents.
    empty: Vec<BlockId>,
    /// Unused blocks with findable contents, by the time they were freed.
    idle: BTreeMap<u64, BlockId>,
    /// All blocks with a content, oldest first.
    by_hash: HashMap<u64, Vec<BlockId>>,
    clock: u64,
    evictions: u64,
}

impl BlockCache {
    /// Creates an empty cache of `blocks` blocks.
    pub(crate) fn new(blocks: u32) -> Self {
        Self {
            blocks: (0..blocks).map(|_| CacheBlock::default()).collect(),
            empty: (0..blocks as BlockId).rev().collect(),
            idle: BTreeMap::new(),
            by_hash: HashMap::new(),
            clock: 0,
            evictions: 0,
        }
    }

    /// Returns the number of leading hashes that are held.
    pub(crate) fn matched(&self, hashes: &[u64]) -> usize {
        hashes
            .iter()
            .take_while(|hash| self.by_hash.contains_key(hash))
            .count()
    }

    /// Takes the blocks that hold `hits` (all of them held, see [`Self::matched`]) and `fresh` empty ones. Returns
    /// `None` and changes nothing if there is no room. Adds evictions to `events`.
    pub(crate) fn acquire(
        &mut self,
        hits: &[u64],
        fresh: usize,
        events: &mut Vec<CacheEvent>,
    ) -> Option<Vec<BlockId>> {
        let held: Vec<BlockId> = hits.iter().map(|hash| self.by_hash[hash][0]).collect();
        let idle = held.iter().filter(|&&id| self.blocks[id].references == 0).count();
        if self.empty.len() + self.idle.len() - idle < fresh {
            return None;
        }
        for &id in &held {
            self.idle.remove(&self.blocks[id].freed_at);
            self.blocks[id].references += 1;
        }
        let taken = (0..fresh).map_while(|_| self.take(events));
        Some(held.into_iter().chain(taken.collect::<Vec<_>>()).collect())
    }

    /// Takes one empty block, evicting if necessary; `None` if every block is in use.
    pub(crate) fn take(&mut self, events: &mut Vec<CacheEvent>) -> Option<BlockId> {
        let id = match self.empty.pop() {
            Some(id) => id,
            None => self.evict(events)?,
        };
        self.blocks[id].references = 1;
        Some(id)
    }

    /// Marks a used block as full and findable by its hash.
    pub(crate) fn fill(&mut self, id: BlockId, hash: u64) {
        self.blocks[id].hash = Some(hash);
        self.by_hash.entry(hash).or_default().push(id);
    }

    /// Frees the blocks of a sequence (in prompt order). They stay findable until they are reused.
    pub(crate) fn release(&mut self, blocks: &[BlockId]) {
        for &id in blocks.iter().rev() {
            self.blocks[id].references -= 1;
            if self.blocks[id].references == 0 {
                self.give_back(id);
            }
        }
    }

    /// Clears all contents. Returns `false` and changes nothing if any block is in use.
    pub(crate) fn clear(&mut self) -> bool {
        if self.used() > 0 {
            return false;
        }
        self.by_hash.clear();
        self.empty.extend(std::mem::take(&mut self.idle).into_values());
        for block in &mut self.blocks {
            block.hash = None;
        }
        true
    }

    /// Returns the number of used blocks.
    pub(crate) fn used(&self) -> usize {
        self.blocks.len() - self.empty.len() - self.idle.len()
    }

    /// Returns the number of different contents.
    pub(crate) fn held(&self) -> usize {
        self.by_hash.len()
    }

    /// Returns the number of evictions.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Evicts the block that was freed first.
    fn evict(&mut self, events: &mut Vec<CacheEvent>) -> Option<BlockId> {
        let (_, id) = self.idle.pop_first()?;
        if let Some(hash) = self.blocks[id].hash.take() {
            self.forget(hash, id);
            self.evictions += 1;
            events.push(CacheEvent::Removed(hash));
        }
        Some(id)
    }

    fn give_back(&mut self, id: BlockId) {
        if self.blocks[id].hash.is_none() {
            self.empty.push(id);
            return;
        }
        self.clock += 1;
        self.blocks[id].freed_at = self.clock;
        self.idle.insert(self.clock, id);
    }

    fn forget(&mut self, hash: u64, id: BlockId) {
        if let Some(holders) = self.by_hash.get_mut(&hash) {
            holders.retain(|&holder| holder != id);
            if holders.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes a prompt of these blocks and frees it; returns the evicted hashes.
    fn serve(cache: &mut BlockCache, hashes: &[u64]) -> Vec<u64> {
        let mut events = Vec::new();
        let hits = cache.matched(hashes);
        let blocks = cache
            .acquire(&hashes[..hits], hashes.len() - hits, &mut events)
            .expect("room");
        for (&id, &hash) in blocks.iter().zip(hashes).skip(hits) {
            cache.fill(id, hash);
        }
        cache.release(&blocks);
        let evicted = |event: &CacheEvent| match event {
            CacheEvent::Removed(hash) => *hash,
            other => panic!("{other:?}"),
        };
        events.iter().map(evicted).collect()
    }

    #[test]
    fn the_oldest_chain_goes_first_and_from_its_tail() {
        let mut cache = BlockCache::new(5);
        assert!(serve(&mut cache, &[1, 2, 3]).is_empty());
        assert!(serve(&mut cache, &[4]).is_empty());
        assert_eq!(serve(&mut cache, &[5, 6]), [3]);
        assert_eq!(serve(&mut cache, &[7, 8, 9]), [2, 1, 4]);
        assert_eq!(cache.evictions(), 4);
    }

    #[test]
    fn a_hit_makes_a_chain_young_again() {
        let mut cache = BlockCache::new(3);
        serve(&mut cache, &[1, 2]);
        serve(&mut cache, &[3]);
        serve(&mut cache, &[1, 2]);
        assert_eq!(serve(&mut cache, &[4]), [3]);
    }

    #[test]
    fn blocks_in_use_are_never_taken() {
        let mut cache = BlockCache::new(3);
        let mut events = Vec::new();
        let used = cache.acquire(&[], 2, &mut events).expect("room");
        assert_eq!(cache.acquire(&[], 2, &mut events), None);
        assert_eq!(cache.used(), 2);
        assert!(!cache.clear());
        cache.release(&used);
        assert!(cache.acquire(&[], 3, &mut events).is_some());
    }

    #[test]
    fn hits_count_against_the_room_they_came_from() {
        let mut cache = BlockCache::new(3);
        serve(&mut cache, &[1, 2]);
        let mut events = Vec::new();
        assert_eq!(cache.acquire(&[1, 2], 2, &mut events), None);
        assert_eq!((cache.used(), events.len()), (0, 0));
        assert!(cache.acquire(&[1, 2], 1, &mut events).is_some());
    }

    #[test]
    fn a_content_computed_twice_is_held_until_both_copies_are_gone() {
        let mut cache = BlockCache::new(2);
        let mut events = Vec::new();
        let both = cache.acquire(&[], 2, &mut events).expect("room");
        cache.fill(both[0], 7);
        cache.fill(both[1], 7);
        cache.release(&both);
        assert_eq!(cache.held(), 1);
        cache.take(&mut events);
        assert_eq!(cache.matched(&[7]), 1);
        cache.take(&mut events);
        assert_eq!((cache.matched(&[7]), events.len()), (0, 2));
    }
}
