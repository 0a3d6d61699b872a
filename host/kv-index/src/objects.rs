//! Objects of shared stores, joined to prefixes by the name in their keys.
//!
//! A store's events report its objects, an engine's events report the prefix of a name; the later of the two joins
//! them. A store holds a block once it has all shards of it, on any tiers.

use std::collections::HashSet;
use std::sync::Arc;

use indexmap::IndexMap;
use routing::{ObjectEvent, Shard, StoreId, StoreObject, Tier, WorkerId};

use crate::core::IndexCore;
use crate::count::ObjectsApplied;
use crate::extent::BlockId;
use crate::forest::BlockPosition;
use crate::lanes::LaneId;

/// Most kinds of shards per block.
const MOST_KINDS: usize = 128;

/// Objects joined again at a time.
const REJOINED: usize = 64;

/// Shards of one block, a bit per kind.
#[derive(Debug, Clone, Copy, Default)]
struct ShardSet {
    host: u128,
    disk: u128,
}

/// A shared store.
#[derive(Debug)]
pub(crate) struct StoreObjects {
    lane: LaneId,
    /// Shards of a complete block. `None`: as many as kinds were seen since the store was cleared.
    shards: Option<u32>,
    kinds: Vec<Shard>,
    blocks: IndexMap<u64, ShardSet>,
    /// Number of blocks, the first ones, that may be missing from the lane because it is new.
    unjoined: usize,
    workers: HashSet<WorkerId>,
    /// Model of the objects, as in the keys that name one.
    model: Option<Arc<str>>,
    /// The objects are ambiguous: they belong to several models, which names do not distinguish, or have too many
    /// kinds of shards. Nothing is joined then.
    is_unclear: bool,
}

impl StoreObjects {
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the approximate memory of the objects.
    pub(crate) fn bytes(&self) -> usize {
        // The map has an entry with its hash, and the entry's number in a table.
        self.blocks.capacity() * (size_of::<(u64, ShardSet)>() + size_of::<usize>() + 1)
    }

    pub(crate) fn is_bound(&self, worker: WorkerId) -> bool {
        self.workers.contains(&worker)
    }

    fn is_complete(&self, shards: ShardSet) -> bool {
        let needed = self.shards.unwrap_or(self.kinds.len() as u32).max(1);
        !self.is_unclear && (shards.host | shards.disk).count_ones() >= needed
    }

    /// Returns the bit of a known kind of shard.
    fn known_kind(&self, shard: Shard) -> Option<u128> {
        self.kinds
            .iter()
            .position(|&kind| kind == shard)
            .map(|at| 1 << at)
    }

    /// Adds a kind of shard. Returns `None` if there are too many.
    fn new_kind(&mut self, shard: Shard) -> Option<u128> {
        if self.kinds.len() >= MOST_KINDS {
            return None;
        }
        self.kinds.push(shard);
        self.known_kind(shard)
    }

    fn change(&mut self, block: u64, change: impl FnOnce(&mut ShardSet)) {
        let shards = self.blocks.entry(block).or_default();
        change(shards);
        if shards.host | shards.disk == 0 {
            // The last block takes its place. If that one is joined, it is joined twice.
            self.blocks.swap_remove(&block);
            self.unjoined = self.unjoined.min(self.blocks.len());
        }
    }

    /// Returns a block that may be missing from the lane, and counts it as joined.
    fn next_unjoined(&mut self) -> Option<u64> {
        self.unjoined = self.unjoined.checked_sub(1)?;
        self.blocks.get_index(self.unjoined).map(|(&name, _)| name)
    }
}

fn side(tier: Tier) -> fn(&mut ShardSet) -> &mut u128 {
    match tier {
        Tier::Disk => |shards| &mut shards.disk,
        Tier::Device | Tier::Host | Tier::Shared => |shards| &mut shards.host,
    }
}

impl IndexCore {
    fn objects_of(&mut self, id: StoreId) -> &mut StoreObjects {
        if !self.stores.contains_key(&id) {
            let lane = self.new_lane();
            let objects = StoreObjects {
                lane,
                shards: None,
                kinds: Vec::new(),
                blocks: IndexMap::new(),
                unjoined: 0,
                workers: HashSet::new(),
                model: None,
                is_unclear: false,
            };
            self.stores.insert(id, objects);
        }
        self.stores.get_mut(&id).expect("it was put there above")
    }

    /// Sets the workers that share a store, and the number of shards per block.
    pub(crate) fn bind_store(&mut self, id: StoreId, shards: Option<u32>, workers: &[WorkerId]) {
        let store = self.objects_of(id);
        let was_bound = std::mem::replace(&mut store.workers, workers.iter().copied().collect());
        if store.shards != shards {
            store.shards = shards;
            self.rejoin_all(id);
        }
        for &worker in was_bound.iter().chain(workers) {
            self.refresh_row(worker);
        }
    }

    pub(crate) fn is_unclear_store(&self, id: StoreId) -> bool {
        self.stores.get(&id).is_some_and(|store| store.is_unclear)
    }

    pub(crate) fn unbind_stores(&mut self, worker: WorkerId) {
        for store in self.stores.values_mut() {
            store.workers.remove(&worker);
        }
    }

    /// Removes a store's objects, and its binding if `all`.
    pub(crate) fn clear_store(&mut self, id: StoreId, all: bool) {
        let Some(store) = self.stores.get_mut(&id) else {
            return;
        };
        store.blocks = IndexMap::new();
        store.unjoined = 0;
        store.kinds = Vec::new();
        store.model = None;
        store.is_unclear = false;
        let gone = store.lane;
        let lane = self.new_lane();
        self.drop_lane(gone);
        if all {
            self.drop_lane(lane);
            self.stores.remove(&id);
        } else if let Some(store) = self.stores.get_mut(&id) {
            store.lane = lane;
        }
        let bound: Vec<WorkerId> = self.caches.workers().collect();
        bound.into_iter().for_each(|worker| self.refresh_row(worker));
    }

    pub(crate) fn apply_objects(&mut self, id: StoreId, events: &[ObjectEvent]) -> ObjectsApplied {
        let mut applied = ObjectsApplied::default();
        for event in events {
            match event {
                ObjectEvent::Stored { object, tier } => {
                    let is_noted = self.note_object(id, object, *tier);
                    *(if is_noted {
                        &mut applied.stored
                    } else {
                        &mut applied.over_limit
                    }) += 1;
                }
                ObjectEvent::Removed { object, tier } => {
                    self.drop_object(id, object, *tier);
                    applied.removed += 1;
                }
                ObjectEvent::Cleared => {
                    applied.cleared += self.objects_of(id).blocks.len() as u64;
                    self.clear_store(id, false);
                }
            }
        }
        self.gc_step(2);
        applied
    }

    /// Adds a copy of an object. Returns `false` if there is no room.
    fn note_object(&mut self, id: StoreId, object: &StoreObject, tier: Tier) -> bool {
        let (name, most) = (object.block.0, self.limits.max_blocks);
        let store = self.objects_of(id);
        if store.blocks.len() >= most && !store.blocks.contains_key(&name) {
            return false;
        }
        // A key that is a bare number names no model, so it is no evidence of another one.
        let is_other = !object.model.is_empty()
            && *store.model.get_or_insert_with(|| object.model.clone()) != object.model;
        let known = store.known_kind(object.shard);
        let is_too_many = known.is_none() && store.kinds.len() >= MOST_KINDS && store.shards.is_none();
        if (is_other || is_too_many) && !store.is_unclear {
            store.is_unclear = true;
            self.rejoin_all(id);
        }
        let store = self.objects_of(id);
        let Some(bit) = known.or_else(|| store.new_kind(object.shard)) else {
            return false;
        };
        store.change(name, |shards| *side(tier)(shards) |= bit);
        if known.is_none() && store.shards.is_none() {
            self.rejoin_all(id);
        } else {
            self.settle(id, name);
        }
        true
    }

    /// Removes a copy of an object; without a tier, all copies.
    fn drop_object(&mut self, id: StoreId, object: &StoreObject, tier: Option<Tier>) {
        let store = self.objects_of(id);
        let Some(bit) = store.known_kind(object.shard) else {
            return;
        };
        store.change(object.block.0, |shards| match tier {
            Some(tier) => *side(tier)(shards) &= !bit,
            None => (shards.host, shards.disk) = (shards.host & !bit, shards.disk & !bit),
        });
        self.settle(id, object.block.0);
    }

    /// Returns the lanes of the stores that a worker shares.
    pub(crate) fn store_lanes(&self, worker: WorkerId) -> impl Iterator<Item = LaneId> + '_ {
        let bound = self.stores.values().filter(move |store| store.is_bound(worker));
        bound.map(|store| store.lane)
    }

    /// Joins the stores' objects to a block that has just been named.
    pub(crate) fn join_objects(&mut self, name: u64) {
        let with: Vec<StoreId> = self
            .stores
            .iter()
            .filter(|(_, store)| store.blocks.contains_key(&name))
            .map(|(&id, _)| id)
            .collect();
        for id in with {
            self.settle(id, name);
        }
    }

    /// Updates the store's blocks with this name: held if it has all the shards.
    ///
    /// If engines use one name for several contents, the meaning of the store's own workers counts.
    fn settle(&mut self, id: StoreId, name: u64) {
        let store = self.objects_of(id);
        let lane = store.lane;
        let is_complete = store
            .blocks
            .get(&name)
            .is_some_and(|&shards| store.is_complete(shards));
        if !is_complete && self.lanes[lane.0 as usize].held == 0 {
            return;
        }
        let places = self.places_named(name);
        let is_shared = places.len() > 1;
        for place in places {
            if is_complete && (!is_shared || self.is_meant(id, place, name)) {
                self.join(lane, place, name);
            } else {
                self.part(lane, place, name);
            }
        }
    }

    /// Adds a block to the store's lane, with the name in its key: a cache with that name may be removed before the
    /// object is.
    fn join(&mut self, lane: LaneId, place: BlockPosition, name: u64) {
        let block = self.forest.block(place);
        let is_alias = self.forest.name(self.forest.run(place.run), place.at) != Some(name);
        let known = self.lanes[lane.0 as usize].alias(name);
        let has_room = !is_alias || self.lanes[lane.0 as usize].has_room_for_alias(block);
        if known.is_some_and(|known| known == block || is_alias) || !has_room {
            return;
        }
        let was_held = self.cover(lane, place.run, place.at, place.at + 1) == 0;
        if is_alias {
            self.add_alias(lane, name, block, was_held);
        } else {
            self.lanes[lane.0 as usize].add_shared_name(block, was_held);
        }
    }

    /// Reverses [`IndexCore::join`].
    fn part(&mut self, lane: LaneId, place: BlockPosition, name: u64) {
        let block = self.forest.block(place);
        let names = &self.lanes[lane.0 as usize];
        let is_joined = match names.alias(name) {
            Some(alias) => alias == block,
            None => {
                let shared = self.forest.name(self.forest.run(place.run), place.at) == Some(name);
                shared && names.holds_by_shared_name(lane, block, &self.forest)
            }
        };
        if is_joined && self.lanes[lane.0 as usize].remove_name(name, block) {
            self.uncover(lane, place);
        }
    }

    /// Returns `true` if a worker that shares the store holds the block under this name.
    fn is_meant(&self, id: StoreId, place: BlockPosition, name: u64) -> bool {
        let workers = self.stores.get(&id).into_iter().flat_map(|store| &store.workers);
        let caches = workers.flat_map(|&worker| self.caches.ranks(worker));
        let mut lanes = caches.flat_map(|(_, cache)| &cache.lanes);
        let block = self.forest.block(place);
        lanes.any(|lane| self.lanes[lane.id.0 as usize].resolve(lane.id, name, &self.forest) == Some(block))
    }

    /// Returns every block that any engine has under this name.
    fn places_named(&self, name: u64) -> Vec<BlockPosition> {
        let lanes = self.aliased.iter().map(|lane| &self.lanes[lane.0 as usize]);
        let mut blocks: Vec<BlockId> = lanes.filter_map(|lane| lane.alias(name)).collect();
        self.forest.find_named(name, |block| {
            blocks.push(block);
            None::<()>
        });
        blocks.sort_unstable();
        blocks.dedup();
        blocks.into_iter().map(|block| self.forest.place(block)).collect()
    }

    /// Begins to join all objects again in a new lane, after the number of shards per block has changed. Garbage
    /// collection goes on with it; objects that are not joined yet count for no worker.
    fn rejoin_all(&mut self, id: StoreId) {
        let lane = self.new_lane();
        let store = self.objects_of(id);
        let gone = std::mem::replace(&mut store.lane, lane);
        store.unjoined = if store.is_unclear { 0 } else { store.blocks.len() };
        self.drop_lane(gone);
        if !self.rejoining.contains(&id) {
            self.rejoining.push_back(id);
        }
        self.rejoin_some();
    }

    /// Joins some objects of the next store that has any to be joined again.
    pub(crate) fn rejoin_some(&mut self) {
        let Some(&id) = self.rejoining.front() else {
            return;
        };
        for _ in 0..REJOINED {
            let store = self.stores.get_mut(&id);
            let Some(name) = store.and_then(StoreObjects::next_unjoined) else {
                self.rejoining.pop_front();
                return;
            };
            self.settle(id, name);
        }
    }
}
