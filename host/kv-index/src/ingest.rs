//! Applying events of caches: admission of stores, and the content of their blocks. `hold/` stores each block.

use std::ops::Range;

use routing::{Attention, BlockEvent, StoredBlocks, Tier};

use crate::cache::{CacheGroup, KvCache};
use crate::core::IndexCore;
use crate::count::{Applied, PART};
use crate::forest::{AHEAD, BlockPosition, NewBlocks, NumbersExhausted};
use crate::hash::{Namespace, extra_digest, local_hash, sequence_hash};
use crate::hold::{LaneProgress, StoreOutcome, StoreProgress};
use crate::holder::Holder;

/// Runs that the eviction hand examines with every event.
const GC_RUNS_PER_EVENT: u32 = 2;
/// Most KV-cache groups of one cache; models have a handful.
pub(crate) const MOST_GROUPS: usize = 32;
/// Most blocks that a cache may hold when the kind of its blocks becomes known.
const BEGINNING: u64 = 1024;

/// Reason why a store is not indexed.
enum StoreRefusal {
    Malformed,
    UnknownGroup,
    OtherBlockSize,
    UnknownParent,
}

impl IndexCore {
    /// Applies some blocks of an event, starting at a given one. Returns the start of the next part, or `None` at the
    /// end.
    pub(crate) fn apply_part(
        &mut self,
        holder: Holder,
        event: &BlockEvent,
        from: usize,
    ) -> (Applied, Option<usize>) {
        let mut applied = Applied::default();
        let mut to = from + PART;
        match event {
            BlockEvent::Stored(stored) => {
                to = to.min(stored.hashes.len());
                if from < to && !self.store(holder, stored, from..to, &mut applied) {
                    to = stored.hashes.len();
                }
            }
            BlockEvent::Removed(removed) => {
                to = to.min(removed.hashes.len());
                self.remove(holder, removed, from..to, &mut applied);
            }
            BlockEvent::Cleared => return (self.clear(holder), None),
        }
        self.applied += applied;
        self.gc_step(GC_RUNS_PER_EVENT);
        (applied, Some(to).filter(|&to| to < blocks_of(event)))
    }

    /// Returns `false` if the rest of the event cannot be indexed either; it is counted then.
    fn store(
        &mut self,
        holder: Holder,
        stored: &StoredBlocks,
        part: Range<usize>,
        applied: &mut Applied,
    ) -> bool {
        match self.admit(holder, stored, part.start, applied) {
            Ok(parent) => {
                let mut storing = self.begin(holder, stored, part, parent);
                let stride = stored.block_size / storing.base;
                let goes_on = if stride == 1 {
                    self.store_each(&mut storing, applied)
                } else {
                    self.store_long(&mut storing, stride as usize, applied)
                };
                self.write_down(&mut storing.lane, applied);
                self.remember_end(&storing);
                goes_on
            }
            Err(refused) => {
                let count = match refused {
                    StoreRefusal::Malformed => &mut applied.malformed,
                    StoreRefusal::UnknownGroup => &mut applied.skipped_group,
                    StoreRefusal::OtherBlockSize => &mut applied.other_block_size,
                    StoreRefusal::UnknownParent => &mut applied.unknown_parent,
                };
                *count += (stored.hashes.len() - part.start) as u64;
                false
            }
        }
    }

    /// Returns the position of the parent; `None` at the start of a chain.
    fn admit(
        &mut self,
        holder: Holder,
        stored: &StoredBlocks,
        from: usize,
        applied: &mut Applied,
    ) -> Result<Option<BlockPosition>, StoreRefusal> {
        let count = stored.hashes.len();
        let width = stored.block_size as usize;
        let keys_fit = stored.extra_keys.is_empty() || stored.extra_keys.len() == count;
        if stored.attention == Attention::Unknown {
            return Err(StoreRefusal::UnknownGroup);
        }
        if width == 0 || count.checked_mul(width) != Some(stored.tokens.len()) || !keys_fit {
            return Err(StoreRefusal::Malformed);
        }
        if !self.admit_group(holder, stored, applied) {
            return Err(StoreRefusal::OtherBlockSize);
        }
        let before = from.checked_sub(1).map(|before| stored.hashes[before]);
        let Some(parent) = before.or(stored.parent) else {
            return Ok(None);
        };
        let place = self.held_under(holder, parent.0);
        place.map(Some).ok_or(StoreRefusal::UnknownParent)
    }

    /// Learns the kind of a group's blocks. Returns `false` if these blocks differ from the others.
    ///
    /// A block shorter than the others of its group is partial; vLLM announces some. If the first blocks were partial,
    /// they are forgotten at the first whole one. All blocks are forgotten if a group has smaller blocks than the
    /// cache was known to have. Connectors announce longer blocks, and the last ones of any length, on their own tier:
    /// the engine's own blocks are those on the device. All of this happens only at a cache's beginning.
    fn admit_group(&mut self, holder: Holder, stored: &StoredBlocks, applied: &mut Applied) -> bool {
        let group = CacheGroup {
            index: stored.group,
            attention: stored.attention,
            block_size: stored.block_size,
        };
        let Some(cache) = self.caches.get(holder) else {
            self.know_groups(holder, group.block_size, vec![group]);
            return true;
        };
        match cache.group(group.index) {
            Some(known) if known == group => return true,
            None if cache.groups.len() >= MOST_GROUPS => return false,
            None if cache.base == 0 || group.block_size.is_multiple_of(cache.base) => {}
            known => {
                let Some(groups) = self.groups_kept(cache, stored.tier, known, group) else {
                    return false;
                };
                *applied += self.forget(holder);
                self.know_groups(holder, group.block_size, groups);
            }
        }
        self.know_groups(holder, group.block_size, vec![group]);
        true
    }

    /// Returns the other groups that a cache keeps if it forgets all its blocks for those of `group`. `known` is the
    /// cache's group of the same index. Returns `None` if the cache keeps its blocks.
    fn groups_kept(
        &self,
        cache: &KvCache,
        tier: Tier,
        known: Option<CacheGroup>,
        group: CacheGroup,
    ) -> Option<Vec<CacheGroup>> {
        let (mut here, mut elsewhere) = (0, 0);
        for lane in &cache.lanes {
            let of_tier = if lane.tier == tier {
                &mut here
            } else {
                &mut elsewhere
            };
            *of_tier += self.lanes[lane.id.0 as usize].held;
        }
        if here + elsewhere > BEGINNING {
            // Too late to be the beginning.
            return None;
        }
        if tier == Tier::Device && here == 0 {
            return Some(Vec::new());
        }
        let were_partial = match known {
            Some(known) => known.attention == group.attention && known.block_size < group.block_size,
            None => cache.base.is_multiple_of(group.block_size),
        };
        let others = cache.groups.iter().filter(|other| other.index != group.index);
        let fits = |other: &&CacheGroup| other.block_size.is_multiple_of(group.block_size);
        (were_partial && elsewhere == 0).then(|| others.filter(fits).copied().collect())
    }

    pub(crate) fn know_groups(&mut self, holder: Holder, base: u32, groups: Vec<CacheGroup>) {
        let cache = self.caches.make(holder);
        if cache.base == 0 {
            cache.base = base;
        }
        cache.groups.extend(groups);
        cache.groups.sort_by_key(|group| group.index);
        self.refresh_row(holder.worker);
    }

    fn begin<'a>(
        &mut self,
        holder: Holder,
        stored: &'a StoredBlocks,
        part: Range<usize>,
        parent: Option<BlockPosition>,
    ) -> StoreProgress<'a> {
        let cache = self.caches.make(holder);
        let base = cache.base;
        let lane = match cache.lane(stored.tier, stored.group) {
            Some(lane) => lane,
            None => {
                let lane = self.add_lane(holder, stored.tier, stored.group);
                self.refresh_row(holder.worker);
                lane
            }
        };
        StoreProgress {
            stored,
            part,
            base,
            lane: LaneProgress {
                holder,
                lane,
                parent,
                is_plain: self.has_plain_names(holder),
                pending: None,
            },
        }
    }

    /// Stores blocks of the cache's own size. Returns `false` if one cannot be indexed, and so none after it.
    fn store_each(&mut self, storing: &mut StoreProgress<'_>, applied: &mut Applied) -> bool {
        let names = storing.names();
        let contents = self.chained(storing, &locals(storing));
        let (mut at, mut near) = (0, 0);
        let mut new = NewBlocks::default();
        while at < names.len() {
            at += self.hold_known(&mut storing.lane, &contents[at..], &names[at..], applied);
            if at == names.len() {
                break;
            }
            if at >= near {
                new = self.forest.read_ahead(&contents[at..], &names[at..]);
                near = at + AHEAD;
            }
            let block = new.block(at + AHEAD - near);
            let outcome = match self.find_or_add_new(storing.lane.parent, contents[at], block) {
                Ok(place) => self.hold_new(&mut storing.lane, place, names[at].0, block, applied),
                Err(_) => StoreOutcome::OverLimit,
            };
            if !outcome.goes_on(storing.left() - at, applied) {
                return false;
            }
            at += 1;
        }
        true
    }

    /// Stores blocks of a group whose blocks span several of the cache's own. Each is held by the last of those, which
    /// has its name.
    fn store_long(&mut self, storing: &mut StoreProgress<'_>, stride: usize, applied: &mut Applied) -> bool {
        let names = storing.names();
        let locals = locals(storing);
        for (at, name) in names.iter().enumerate() {
            self.write_down(&mut storing.lane, applied);
            let named = self.held_under(storing.lane.holder, name.0);
            // If another group announced the prefix, it is known by name, whatever extra keys it has.
            let place = named.ok_or(NumbersExhausted).or_else(|_| {
                let parts = self.chained(storing, &locals[at * stride..(at + 1) * stride]);
                let mut parent = storing.lane.parent;
                for content in parts {
                    parent = Some(self.find_or_add(parent, content)?);
                }
                parent.ok_or(NumbersExhausted)
            });
            let outcome = match place {
                Ok(place) => self.hold(&mut storing.lane, place, name.0, applied),
                Err(NumbersExhausted) => StoreOutcome::OverLimit,
            };
            if !outcome.goes_on(storing.left() - at, applied) {
                return false;
            }
        }
        true
    }

    /// Returns the sequence hashes of the blocks that follow the parent.
    fn chained(&self, storing: &StoreProgress<'_>, locals: &[u64]) -> Vec<u64> {
        let mut sequence = match storing.lane.parent {
            Some(BlockPosition { run, at }) => Some(self.forest.content(self.forest.run(run), at)),
            None => Namespace::of(storing.stored.lora.as_ref()).root(),
        };
        let link = |&local: &u64| {
            let content = sequence_hash(sequence, local);
            sequence = Some(content);
            content
        };
        locals.iter().map(link).collect()
    }

    /// Returns the block that any lane of the cache holds under this name.
    fn held_under(&self, holder: Holder, name: u64) -> Option<BlockPosition> {
        let cache = self.caches.get(holder)?;
        if cache.is_ambiguous(name) {
            return None;
        }
        if let Some((last, place)) = cache.last_stored
            && last == name
            && self.is_named(place, name)
            && cache.lanes.iter().any(|lane| {
                self.lanes[lane.id.0 as usize].holds_by_shared_name(
                    lane.id,
                    self.forest.block(place),
                    &self.forest,
                )
            })
        {
            return Some(place);
        }
        let mut lanes = cache.lanes.iter();
        let block =
            lanes.find_map(|lane| self.lanes[lane.id.0 as usize].resolve(lane.id, name, &self.forest))?;
        Some(self.forest.place(block))
    }

    /// Returns `true` if the block still exists with this shared name.
    pub(crate) fn is_named(&self, place: BlockPosition, name: u64) -> bool {
        let run = self.forest.runs().find(place.run);
        run.is_some_and(|run| place.at < run.len && self.forest.name(run, place.at) == Some(name))
    }

    fn remember_end(&mut self, storing: &StoreProgress<'_>) {
        if let (Some(place), Some(name)) = (storing.lane.parent, storing.names().last())
            && let Some(cache) = self.caches.get_mut(storing.lane.holder)
        {
            cache.last_stored = Some((name.0, place));
        }
    }
}

/// Returns the local hashes of the blocks. They are computed apart from their chain, whose steps depend on each other,
/// so that the processor computes several in parallel.
fn locals(storing: &StoreProgress<'_>) -> Vec<u64> {
    let (stored, part) = (storing.stored, &storing.part);
    let namespace = Namespace::of(stored.lora.as_ref());
    let (width, base) = (stored.block_size as usize, storing.base as usize);
    let tokens = &stored.tokens[part.start * width..part.end * width];
    tokens
        .chunks_exact(base)
        .enumerate()
        .map(|(at, tokens)| {
            // Of a block in several parts, the first part gets the keys, as with a salt.
            let is_first = (at * base).is_multiple_of(width);
            let keys = is_first.then(|| stored.extra_keys.get(part.start + at * base / width));
            let keys = keys.flatten().map_or(&[][..], Vec::as_slice);
            local_hash(tokens, extra_digest(keys, namespace))
        })
        .collect()
}

pub(crate) fn blocks_of(event: &BlockEvent) -> usize {
    match event {
        BlockEvent::Stored(stored) => stored.hashes.len(),
        BlockEvent::Removed(removed) => removed.hashes.len(),
        BlockEvent::Cleared => 1,
    }
}
