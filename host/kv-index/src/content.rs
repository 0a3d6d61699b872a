//! The forward direction: prefix -> who holds its last block, tier by tier.
//!
//! It must not know engine hashes. A holder may store one content several times under different engine hashes; all but the
//! first are counted aside, as that is rare.

use std::collections::HashMap;

use routing::Tier;

use crate::chain::{HashKeyed, PrefixHash};
use crate::slots::SlotSet;

/// Who holds one block.
#[derive(Debug, Default)]
pub(crate) struct Content {
    device: SlotSet,
    /// Host, disk, shared: most blocks are on the device only.
    lower: Option<Box<[SlotSet; 3]>>,
}

impl Content {
    fn tier(&mut self, tier: Tier) -> &mut SlotSet {
        let place = match tier {
            Tier::Device => return &mut self.device,
            Tier::Host => 0,
            Tier::Disk => 1,
            Tier::Shared => 2,
        };
        &mut self.lower.get_or_insert_default()[place]
    }

    /// The slots `64 * index ..` that hold it on the device, on device or host, on any tier.
    pub(crate) fn cumulative(&self, index: usize) -> [u64; 3] {
        let device = self.device.word(index);
        let [host, disk, shared] = match &self.lower {
            None => [0; 3],
            Some(lower) => [lower[0].word(index), lower[1].word(index), lower[2].word(index)],
        };
        [device, device | host, device | host | disk | shared]
    }

    fn is_empty(&self) -> bool {
        self.device.is_empty()
            && self
                .lower
                .as_ref()
                .is_none_or(|lower| lower.iter().all(SlotSet::is_empty))
    }
}

/// All blocks that anyone holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    blocks: HashMap<PrefixHash, Content, HashKeyed>,
    /// How many times more than once a holder has a block on a tier.
    copies: HashMap<(PrefixHash, u32, Tier), u32>,
}

impl Contents {
    /// One more copy at this holder, on this tier.
    pub(crate) fn add(&mut self, prefix: PrefixHash, slot: u32, tier: Tier) {
        if !self.blocks.entry(prefix).or_default().tier(tier).insert(slot) {
            *self.copies.entry((prefix, slot, tier)).or_insert(0) += 1;
        }
    }

    /// One copy less.
    pub(crate) fn take(&mut self, prefix: PrefixHash, slot: u32, tier: Tier) {
        if !self.copies.is_empty()
            && let Some(copies) = self.copies.get_mut(&(prefix, slot, tier))
        {
            *copies -= 1;
            if *copies == 0 {
                self.copies.remove(&(prefix, slot, tier));
            }
            return;
        }
        if let Some(content) = self.blocks.get_mut(&prefix) {
            content.tier(tier).remove(slot);
            if content.is_empty() {
                self.blocks.remove(&prefix);
            }
        }
    }

    pub(crate) fn get(&self, prefix: PrefixHash) -> Option<&Content> {
        self.blocks.get(&prefix)
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }
}
