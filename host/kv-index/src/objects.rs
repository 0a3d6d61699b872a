//! Objects of stores that workers share, joined to prefixes by the name in their keys.
//!
//! A store says which object it holds, an engine's events say which prefix a name stands for; whichever comes later joins them.
//! A block counts as held by the store once all its shards are there, on whichever tiers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use routing::{ObjectEvent, Shard, StoreId, StoreObject, Tier, WorkerId};

use crate::core::Core;
use crate::count::ObjectsApplied;
use crate::extent::BlockId;
use crate::forest::Place;
use crate::lanes::LaneId;

/// Kinds of shards that a block can have.
const MOST_KINDS: usize = 128;

/// The shards of one block, a bit for each kind.
#[derive(Debug, Clone, Copy, Default)]
struct Shards {
    host: u128,
    disk: u128,
}

/// One store.
#[derive(Debug)]
pub(crate) struct Objects {
    lane: LaneId,
    /// Shards of a complete block; none: as many as kinds were ever seen.
    shards: Option<u32>,
    kinds: Vec<Shard>,
    blocks: HashMap<u64, Shards>,
    workers: HashSet<WorkerId>,
    /// The model of its objects, as their keys spell it.
    model: Option<Arc<str>>,
    /// Whether the objects do not tell enough: of several models, which names do not tell apart, or of more kinds of shards
    /// than are told apart. Nothing is joined then.
    is_unclear: bool,
}

impl Objects {
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// A rough count of the memory they take.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.capacity() * (size_of::<(u64, Shards)>() + 1)
    }

    pub(crate) fn is_bound(&self, worker: WorkerId) -> bool {
        self.workers.contains(&worker)
    }

    fn is_complete(&self, shards: Shards) -> bool {
        let needed = self.shards.unwrap_or(self.kinds.len() as u32).max(1);
        !self.is_unclear && (shards.host | shards.disk).count_ones() >= needed
    }

    /// The bit of a kind of shard that is known.
    fn known_kind(&self, shard: Shard) -> Option<u128> {
        self.kinds
            .iter()
            .position(|&kind| kind == shard)
            .map(|at| 1 << at)
    }

    /// Gets to know a kind of shard; none if there are too many.
    fn new_kind(&mut self, shard: Shard) -> Option<u128> {
        if self.kinds.len() >= MOST_KINDS {
            return None;
        }
        self.kinds.push(shard);
        self.known_kind(shard)
    }

    fn change(&mut self, block: u64, change: impl FnOnce(&mut Shards)) {
        let shards = self.blocks.entry(block).or_default();
        change(shards);
        if shards.host | shards.disk == 0 {
            self.blocks.remove(&block);
        }
    }
}

fn side(tier: Tier) -> fn(&mut Shards) -> &mut u128 {
    match tier {
        Tier::Disk => |shards| &mut shards.disk,
        Tier::Device | Tier::Host | Tier::Shared => |shards| &mut shards.host,
    }
}

impl Core {
    fn objects_of(&mut self, id: StoreId) -> &mut Objects {
        if !self.stores.contains_key(&id) {
            let lane = self.new_lane();
            let objects = Objects {
                lane,
                shards: None,
                kinds: Vec::new(),
                blocks: HashMap::new(),
                workers: HashSet::new(),
                model: None,
                is_unclear: false,
            };
            self.stores.insert(id, objects);
        }
        self.stores.get_mut(&id).expect("it was put there above")
    }

    /// Says who shares a store, and of how many shards its blocks are.
    pub(crate) fn bind_store(&mut self, id: StoreId, shards: Option<u32>, workers: &[WorkerId]) {
        let store = self.objects_of(id);
        let was_bound = std::mem::replace(&mut store.workers, workers.iter().copied().collect());
        if store.shards != shards {
            store.shards = shards;
            self.join_anew(id);
        }
        for &worker in was_bound.iter().chain(workers) {
            self.refresh_row(worker);
        }
    }

    pub(crate) fn unbind_stores(&mut self, worker: WorkerId) {
        for store in self.stores.values_mut() {
            store.workers.remove(&worker);
        }
    }

    /// Forgets a store's objects, and whom it is bound to as well if `all`.
    pub(crate) fn clear_store(&mut self, id: StoreId, all: bool) {
        let Some(store) = self.stores.get_mut(&id) else {
            return;
        };
        store.blocks = HashMap::new();
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
        self.tend(2);
        applied
    }

    /// A copy of an object; false if there is no room to note it.
    fn note_object(&mut self, id: StoreId, object: &StoreObject, tier: Tier) -> bool {
        let (name, most) = (object.block.0, self.limits.max_blocks);
        let store = self.objects_of(id);
        if store.blocks.len() >= most && !store.blocks.contains_key(&name) {
            return false;
        }
        let model = store.model.get_or_insert_with(|| object.model.clone());
        let is_other = *model != object.model;
        let known = store.known_kind(object.shard);
        let is_too_many = known.is_none() && store.kinds.len() >= MOST_KINDS && store.shards.is_none();
        if (is_other || is_too_many) && !store.is_unclear {
            store.is_unclear = true;
            self.join_anew(id);
        }
        let store = self.objects_of(id);
        let Some(bit) = known.or_else(|| store.new_kind(object.shard)) else {
            return false;
        };
        store.change(name, |shards| *side(tier)(shards) |= bit);
        if known.is_none() && store.shards.is_none() {
            self.join_anew(id);
        } else {
            self.settle(id, name);
        }
        true
    }

    /// A copy is gone; without a tier, all are.
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

    /// The lanes of the stores that a worker shares.
    pub(crate) fn store_lanes(&self, worker: WorkerId) -> impl Iterator<Item = LaneId> + '_ {
        let bound = self.stores.values().filter(move |store| store.is_bound(worker));
        bound.map(|store| store.lane)
    }

    /// A name was given to a block: the stores may have its objects.
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

    /// Has the store hold what a name stands for, or not, as it has all the shards or has not.
    ///
    /// Where engines give several contents one name, it means what the store's own workers mean by it.
    fn settle(&mut self, id: StoreId, name: u64) {
        let store = self.objects_of(id);
        let lane = store.lane;
        let is_complete = store
            .blocks
            .get(&name)
            .is_some_and(|&shards| store.is_complete(shards));
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

    /// Has a store hold a block, by the name in its key: a cache that calls it so may leave before the object does.
    fn join(&mut self, lane: LaneId, place: Place, name: u64) {
        let block = self.forest.block(place);
        let is_alias = self.forest.name(self.forest.run(place.run), place.at) != Some(name);
        let known = self.lanes[lane.0 as usize].alias(name);
        if known.is_some_and(|known| known == block || is_alias) {
            return;
        }
        let was_held = self.cover(lane, place.run, place.at, place.at + 1) == 0;
        let names = &mut self.lanes[lane.0 as usize];
        if is_alias {
            names.add_alias(name, block, was_held);
        } else {
            names.add_shared_name(block, was_held);
        }
    }

    /// The opposite of joining.
    fn part(&mut self, lane: LaneId, place: Place, name: u64) {
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

    /// Whether a worker that shares the store holds the block under this name.
    fn is_meant(&self, id: StoreId, place: Place, name: u64) -> bool {
        let workers = self.stores.get(&id).into_iter().flat_map(|store| &store.workers);
        let caches = workers.flat_map(|&worker| self.caches.ranks(worker));
        let mut lanes = caches.flat_map(|(_, cache)| &cache.lanes);
        let block = self.forest.block(place);
        lanes.any(|lane| self.lanes[lane.id.0 as usize].resolve(lane.id, name, &self.forest) == Some(block))
    }

    /// Every block that any engine calls so.
    fn places_named(&self, name: u64) -> Vec<Place> {
        let mut blocks: Vec<BlockId> = self.lanes.iter().filter_map(|lane| lane.alias(name)).collect();
        self.forest.find_named(name, |block| {
            blocks.push(block);
            None::<()>
        });
        blocks.sort_unstable();
        blocks.dedup();
        blocks.into_iter().map(|block| self.forest.place(block)).collect()
    }

    /// What makes a block complete has changed: starts over with a lane of its own.
    fn join_anew(&mut self, id: StoreId) {
        let lane = self.new_lane();
        let gone = std::mem::replace(&mut self.objects_of(id).lane, lane);
        self.drop_lane(gone);
        let names: Vec<u64> = self.objects_of(id).blocks.keys().copied().collect();
        for name in names {
            self.settle(id, name);
        }
    }
}
