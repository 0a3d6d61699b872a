//! Recency lists: blocks in the order of their use, on each tier, without capacities and prompts.

use std::collections::HashMap;

/// Device, host, disk.
pub(super) const TIERS: usize = 3;

/// End of a list.
const NONE: usize = usize::MAX;

/// Every block is on one tier, or nowhere.
#[derive(Debug)]
pub(super) struct Recency {
    entries: Vec<Entry>,
    /// Entries of blocks that are gone.
    free: Vec<usize>,
    /// Looked up only: its order decides nothing.
    entry_of: HashMap<u64, usize>,
    tiers: [List; TIERS],
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    block: Block,
    tier: usize,
    newer: usize,
    older: usize,
}

#[derive(Debug, Clone, Copy)]
struct List {
    newest: usize,
    oldest: usize,
    len: usize,
}

/// A block, and the one before it in every prompt that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) id: u64,
    pub(super) parent: Option<u64>,
}

impl Default for Recency {
    fn default() -> Self {
        let empty = List {
            newest: NONE,
            oldest: NONE,
            len: 0,
        };
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            entry_of: HashMap::new(),
            tiers: [empty; TIERS],
        }
    }
}

impl Recency {
    /// Returns the tier of the block.
    pub(super) fn tier(&self, id: u64) -> Option<usize> {
        self.entry_of.get(&id).map(|at| self.entries[*at].tier)
    }

    /// Returns how many blocks a tier has.
    pub(super) fn len(&self, tier: usize) -> usize {
        self.tiers[tier].len
    }

    /// Makes a block the newest of a tier. Returns its former place.
    pub(super) fn put(&mut self, block: Block, tier: usize) -> Option<usize> {
        if let Some(&at) = self.entry_of.get(&block.id) {
            let before = self.entries[at].tier;
            self.unlink(at);
            self.link(at, tier);
            return Some(before);
        }
        let entry = Entry {
            block,
            tier,
            newer: NONE,
            older: NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.entry_of.insert(block.id, at);
        self.link(at, tier);
        None
    }

    /// Makes a block the newest where it is. Returns whether it is anywhere.
    pub(super) fn touch(&mut self, id: u64) -> bool {
        let Some(&at) = self.entry_of.get(&id) else {
            return false;
        };
        let tier = self.entries[at].tier;
        self.unlink(at);
        self.link(at, tier);
        true
    }

    /// Takes the oldest block of a tier away.
    pub(super) fn pop_oldest(&mut self, tier: usize) -> Option<Block> {
        let at = self.tiers[tier].oldest;
        if at == NONE {
            return None;
        }
        self.unlink(at);
        let block = self.entries[at].block;
        self.entry_of.remove(&block.id);
        self.free.push(at);
        Some(block)
    }

    fn unlink(&mut self, at: usize) {
        let Entry {
            tier, newer, older, ..
        } = self.entries[at];
        match newer {
            NONE => self.tiers[tier].newest = older,
            newer => self.entries[newer].older = older,
        }
        match older {
            NONE => self.tiers[tier].oldest = newer,
            older => self.entries[older].newer = newer,
        }
        self.tiers[tier].len -= 1;
    }

    fn link(&mut self, at: usize, tier: usize) {
        let list = &mut self.tiers[tier];
        let before = std::mem::replace(&mut list.newest, at);
        list.len += 1;
        match before {
            NONE => list.oldest = at,
            before => self.entries[before].newer = at,
        }
        let entry = &mut self.entries[at];
        (entry.tier, entry.newer, entry.older) = (tier, NONE, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(id: u64) -> Block {
        Block { id, parent: None }
    }

    fn drained(recency: &mut Recency, tier: usize) -> Vec<u64> {
        std::iter::from_fn(|| recency.pop_oldest(tier))
            .map(|block| block.id)
            .collect()
    }

    #[test]
    fn the_oldest_goes_first_and_a_touch_makes_new() {
        let mut recency = Recency::default();
        for id in 1..=4 {
            assert_eq!(recency.put(block(id), 0), None);
        }
        assert!(recency.touch(1) && recency.touch(3) && !recency.touch(9));
        assert_eq!(recency.put(block(2), 0), Some(0));
        assert_eq!((recency.len(0), recency.tier(4)), (4, Some(0)));
        assert_eq!(drained(&mut recency, 0), [4, 1, 3, 2]);
        assert_eq!((recency.len(0), recency.tier(4)), (0, None));
    }

    #[test]
    fn a_block_is_on_one_tier_only() {
        let mut recency = Recency::default();
        recency.put(block(1), 0);
        recency.put(block(2), 0);
        assert_eq!(recency.put(block(1), 1), Some(0));
        assert_eq!((recency.len(0), recency.len(1)), (1, 1));
        assert_eq!(drained(&mut recency, 1), [1]);
        recency.put(block(5), 2);
        assert_eq!(recency.tier(5), Some(2));
        assert_eq!(drained(&mut recency, 0), [2]);
    }
}
