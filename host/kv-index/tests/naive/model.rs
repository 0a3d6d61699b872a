//! The reference: all caches, and what events and questions mean for them.

use std::collections::{BTreeMap, HashMap};

use kv_index::{Applied, Holder};
use routing::{Attention, BlockEvent, ExtraKey, Lora, RemovedBlocks, StoredBlocks, WorkerId};

use super::cache::{Cache, Shape};
use super::contents::{Above, Content, Contents};

/// Depths in tokens: on the device; there or on the host; anywhere.
pub(crate) type Depths = [u32; 3];

/// Queried prompt.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) tokens: Vec<u32>,
    pub(crate) lora: Option<String>,
    pub(crate) salt: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    contents: Contents,
    caches: BTreeMap<Holder, Cache>,
}

impl Model {
    /// Applies an event, and returns the result for its blocks.
    pub(crate) fn apply(&mut self, holder: Holder, event: &BlockEvent) -> Applied {
        match event {
            BlockEvent::Stored(stored) => self.store(holder, stored),
            BlockEvent::Removed(removed) => self.remove(holder, removed),
            BlockEvent::Cleared => Applied {
                cleared: self
                    .caches
                    .remove(&holder)
                    .map_or(0, |cache| cache.held.len() as u64),
                ..Applied::default()
            },
        }
    }

    pub(crate) fn remove_worker(&mut self, worker: WorkerId) -> Applied {
        let cleared = self.held_blocks(worker);
        self.caches.retain(|holder, _| holder.worker != worker);
        Applied {
            cleared,
            ..Applied::default()
        }
    }

    /// Counts the blocks that the worker holds, each tier and group for itself. A block with several names counts once.
    pub(crate) fn held_blocks(&self, worker: WorkerId) -> u64 {
        let caches = self.caches.iter().filter(|(holder, _)| holder.worker == worker);
        caches.map(|(_, cache)| cache.held.len() as u64).sum()
    }

    fn store(&mut self, holder: Holder, stored: &StoredBlocks) -> Applied {
        let mut applied = Applied::default();
        let count = stored.hashes.len();
        let shape = Shape {
            block_size: stored.block_size,
            attention: stored.attention,
        };
        if count == 0 {
            return applied;
        }
        let cache = self.caches.entry(holder).or_default();
        let refused = if stored.attention == Attention::Unknown {
            &mut applied.skipped_group
        } else if !fits(stored) {
            &mut applied.malformed
        } else if !cache.admit((stored.tier, stored.group), shape, &mut applied.cleared) {
            &mut applied.other_block_size
        } else {
            let above = match stored.parent {
                None => Some(self.contents.root(stored.lora.as_ref())),
                Some(parent) => cache.stands_for(parent.0).map(Above::Block),
            };
            if let Some(above) = above {
                cache.store(&mut self.contents, above, stored, &mut applied);
                return applied;
            }
            &mut applied.unknown_parent
        };
        *refused = count as u64;
        applied
    }

    fn remove(&mut self, holder: Holder, removed: &RemovedBlocks) -> Applied {
        let mut applied = Applied::default();
        let mut cache = self.caches.get_mut(&holder);
        for hash in &removed.hashes {
            let gone = cache.as_mut().is_some_and(|cache| {
                cache.forget(hash.0, |lane| {
                    lane.1 == removed.group && removed.tier.is_none_or(|tier| tier == lane.0)
                })
            });
            *(if gone {
                &mut applied.removed
            } else {
                &mut applied.absent
            }) += 1;
        }
        applied
    }

    /// Returns the depth of the prompt that every cache holds.
    pub(crate) fn depths(&self, queried: &Asked) -> BTreeMap<Holder, Depths> {
        let mut chains: HashMap<u32, Vec<Content>> = HashMap::new();
        let depths = self.caches.iter().map(|(&holder, cache)| {
            if cache.base == 0 {
                return (holder, [0; 3]);
            }
            let chain = chains
                .entry(cache.base)
                .or_insert_with(|| self.chain(queried, cache.base));
            (holder, cache.depths(chain))
        });
        depths.collect()
    }

    /// Returns the contents of the prompt's blocks, as far as anyone ever stored them.
    fn chain(&self, queried: &Asked, block_size: u32) -> Vec<Content> {
        let lora = queried.lora.as_deref().map(|name| Lora::Name(name.into()));
        let mut salt = Vec::from_iter(queried.salt.as_deref().map(|salt| ExtraKey::Text(salt.into())));
        let mut above = self.contents.find_root(lora.as_ref());
        let mut chain = Vec::new();
        for tokens in queried.tokens.chunks_exact(block_size as usize) {
            let Some(content) = above.and_then(|above| self.contents.find(above, tokens, &salt)) else {
                break;
            };
            chain.push(content);
            above = Some(Above::Block(content));
            salt.clear();
        }
        chain
    }
}

fn fits(stored: &StoredBlocks) -> bool {
    let (count, width) = (stored.hashes.len(), stored.block_size as usize);
    let keys = stored.extra_keys.len();
    width > 0 && count * width == stored.tokens.len() && (keys == 0 || keys == count)
}
