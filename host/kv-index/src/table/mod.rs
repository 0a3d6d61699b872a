//! Hash table from 64-bit hashes to 24-bit ids, at 5 to 10 bytes per entry and one cache miss per lookup.
//!
//! A table stores neither hashes nor keys. 8 bits of the hash exclude most wrong ids; the caller has the key of an id
//! and excludes the rest. Fifteen entries share a cache line. Entries that do not fit into their line overflow to one
//! of the next. The line counts them in its last place (as F14 does), so a removal leaves no tombstone.
//!
//! A full table grows without a pause. A larger one replaces it, and every later insertion moves a few ids in the
//! order of their numbers, which is the order of their keys in memory. A nearly empty table is replaced by a smaller
//! one in the same way, without insertions by [`IdTable::gc_step`].
//!
//! Publishers choose block names and clients choose tokens. Every table therefore hashes its keys again with a secret
//! of its own, so chosen keys spread like random ones. Equal keys share a line with any secret; the caller bounds
//! their number.

use std::hash::{BuildHasher, RandomState};

mod ahead;

pub(crate) use ahead::AHEAD;

/// Upper bound of ids; 0 is not an id.
pub(crate) const MAX_ID: u32 = 1 << 24;

const LINE: usize = 16;
/// Entries of a line. The place after them counts overflowed entries.
const ENTRIES: usize = 15;
const PASSED: usize = ENTRIES;
/// Most hashes of one id.
const MOST_HASHES: usize = 16;
/// Lines allocated together, on demand.
const SEGMENT: usize = 1024;
/// Maximum load: 12 of 15 entries.
const LOAD: usize = 12;
/// Ids moved with every insertion: growing ends long before the next growth.
const MOVES: u32 = 2;
/// A table shrinks if the smaller one is at least this many times smaller.
const SHRINK: usize = 4;
/// Ids and hashes moved at a time without insertions.
const GC_IDS_PER_STEP: usize = 1024;
const TENDED_HASHES: usize = 64;

/// `tag << 24 | id`, or 0.
type TableEntry = u32;

/// Lookup of an id's hashes.
pub(crate) trait HashesOf {
    /// Reports every hash under which the id is in the table.
    fn report(&self, id: u32, to: &mut dyn FnMut(u64));

    /// Returns one more than the highest id.
    fn end(&self) -> u32;
}

/// Multimap from hashes to ids.
#[derive(Debug)]
pub(crate) struct IdTable {
    secret: HashSecret,
    lines: TableLines,
    /// The previous table, while growing.
    old: Option<TableGrowth>,
    /// Segments of the table before: freed one by one, because freeing all at once would take long.
    spent: Vec<Option<Box<[TableLine]>>>,
    /// Most lines that will ever be needed.
    most_lines: usize,
}

#[derive(Debug)]
struct TableGrowth {
    lines: TableLines,
    /// The next id to move.
    next: u32,
    /// Ids from here on are only in the new table.
    end: u32,
    /// One bit per id that was moved out of order.
    moved: Vec<u64>,
}

impl IdTable {
    /// Creates a table for at most `most` entries.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            secret: HashSecret::random(),
            lines: TableLines::new(1),
            old: None,
            spent: Vec::new(),
            most_lines: most.div_ceil(LOAD).saturating_add(1),
        }
    }

    /// Returns the first result of `accept` for an id under this hash. `accept` is also called for a few other ids,
    /// and while growing for some twice.
    pub(crate) fn find<R>(&self, hash: u64, mut accept: impl FnMut(u32) -> Option<R>) -> Option<R> {
        let stirred = self.secret.stir(hash);
        let found = self.lines.find(stirred, &mut accept);
        match &self.old {
            Some(old) if found.is_none() => old.lines.find(stirred, &mut accept),
            _ => found,
        }
    }

    /// Prefetches the hash's line. The result only keeps the compiler from removing the read.
    pub(crate) fn touch(&self, hash: u64) -> u32 {
        self.lines.touch(self.secret.stir(hash))
    }

    /// Adds an id that `hashes` does not report under this hash yet.
    pub(crate) fn insert(&mut self, hash: u64, id: u32, hashes: &impl HashesOf) {
        debug_assert!(id != 0 && id < MAX_ID, "ids are 1 to 2^24 - 1");
        if self.lines.is_full() {
            self.grow(hashes);
        }
        if self.old.is_some() {
            self.move_over(id, hashes);
            for _ in 0..MOVES {
                self.move_next(hashes);
            }
        } else {
            self.spent.pop();
        }
        self.lines.insert(self.secret.stir(hash), id);
    }

    /// Removes an id that was added under this hash. Returns `false` if it was not.
    pub(crate) fn remove(&mut self, hash: u64, id: u32) -> bool {
        let stirred = self.secret.stir(hash);
        match &mut self.old {
            Some(old) if !old.is_moved(id) => old.lines.remove(stirred, id),
            _ => self.lines.remove(stirred, id),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let old = self
            .old
            .as_ref()
            .map_or(0, |old| old.lines.bytes() + old.moved.capacity() * 8);
        let spent: usize = self
            .spent
            .iter()
            .flatten()
            .map(|lines| size_of_val(&**lines))
            .sum();
        self.lines.bytes() + old + spent
    }

    /// Frees memory of a nearly empty table in small steps. Returns `true` if there is more to do.
    pub(crate) fn gc_step(&mut self, hashes: &impl HashesOf) -> bool {
        if self.old.is_some() {
            let mut moved = 0;
            for _ in 0..GC_IDS_PER_STEP {
                moved += self.move_next(hashes);
                if moved >= TENDED_HASHES {
                    break;
                }
            }
            return true;
        }
        if self.spent.pop().is_some() {
            return true;
        }
        self.spent = Vec::new();
        // Capacity for twice as many entries, and for insertions while the ids move.
        let room = self.lines.entries * 2 + (hashes.end() / MOVES) as usize;
        let enough = room.div_ceil(LOAD).max(1);
        let is_sparse = enough * SHRINK <= self.lines.len;
        if is_sparse {
            self.move_to(TableLines::new(enough), hashes);
        }
        is_sparse
    }

    fn grow(&mut self, hashes: &impl HashesOf) {
        while self.old.is_some() {
            for _ in 0..MOVES {
                self.move_next(hashes);
            }
        }
        let len = self.lines.len;
        let enough = if len < self.most_lines {
            self.most_lines
        } else {
            usize::MAX
        };
        self.move_to(TableLines::new((len * 2).min(enough)), hashes);
    }

    /// Starts moving all entries.
    fn move_to(&mut self, lines: TableLines, hashes: &impl HashesOf) {
        let end = hashes.end();
        self.old = Some(TableGrowth {
            lines: std::mem::replace(&mut self.lines, lines),
            next: 1,
            end,
            moved: vec![0; (end as usize).div_ceil(64)],
        });
    }

    /// Moves the next id; returns the number of its hashes.
    fn move_next(&mut self, hashes: &impl HashesOf) -> usize {
        let Some(old) = &mut self.old else { return 0 };
        if old.next >= old.end {
            let old = self.old.take();
            self.spent = old.map(|old| old.lines.segments).unwrap_or_default();
            return 0;
        }
        let id = old.next;
        old.next += 1;
        self.move_over(id, hashes)
    }

    fn move_over(&mut self, id: u32, hashes: &impl HashesOf) -> usize {
        let Some(old) = &mut self.old else { return 0 };
        if old.is_moved_out_of_turn(id) {
            return 0;
        }
        old.moved[id as usize / 64] |= 1 << (id % 64);
        let mut stirred = [0; MOST_HASHES];
        let mut count = 0;
        let secret = self.secret;
        hashes.report(id, &mut |hash| {
            if let Some(place) = stirred.get_mut(count) {
                *place = secret.stir(hash);
                count += 1;
            }
        });
        let stirred = &stirred[..count];
        let near = stirred.iter().fold(0, |near: u32, &stirred| {
            near.wrapping_add(self.lines.touch(stirred))
        });
        std::hint::black_box(near);
        // The old entries stay; the id's own hashes no longer match them.
        for &stirred in stirred {
            self.lines.insert(stirred, id);
        }
        count
    }
}

impl TableGrowth {
    fn is_moved(&self, id: u32) -> bool {
        self.is_moved_out_of_turn(id) || id < self.next
    }

    fn is_moved_out_of_turn(&self, id: u32) -> bool {
        id >= self.end || self.moved[id as usize / 64] >> (id % 64) & 1 == 1
    }
}

/// Table of fixed size.
#[derive(Debug)]
struct TableLines {
    segments: Vec<Option<Box<[TableLine]>>>,
    len: usize,
    entries: usize,
}

/// One cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct TableLine([TableEntry; LINE]);

impl TableLines {
    fn new(len: usize) -> Self {
        Self {
            segments: std::iter::repeat_with(|| None)
                .take(len.div_ceil(SEGMENT))
                .collect(),
            len,
            entries: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.entries >= self.len * LOAD
    }

    fn find<R>(&self, stirred: u64, accept: &mut impl FnMut(u32) -> Option<R>) -> Option<R> {
        let tag = tag(stirred);
        for at in self.probe(stirred) {
            let TableLine(line) = &self.segments[at / SEGMENT].as_ref()?[at % SEGMENT];
            let mut places = places(line, |entry| entry >> 24 == tag);
            while places != 0 {
                let id = line[places.trailing_zeros() as usize] & (MAX_ID - 1);
                places &= places - 1;
                if id != 0
                    && let Some(found) = accept(id)
                {
                    return Some(found);
                }
            }
            if line[PASSED] == 0 {
                return None;
            }
        }
        None
    }

    fn touch(&self, stirred: u64) -> u32 {
        self.line(stirred).map_or(0, |line| line.0[PASSED])
    }

    /// Returns the first line of a hash, if it is allocated.
    fn line(&self, stirred: u64) -> Option<&TableLine> {
        let at = self.home(stirred);
        Some(&self.segments[at / SEGMENT].as_ref()?[at % SEGMENT])
    }

    /// The caller checks that there is room.
    fn insert(&mut self, stirred: u64, id: u32) {
        for at in self.probe(stirred) {
            let lines = SEGMENT.min(self.len - at / SEGMENT * SEGMENT);
            let segment =
                self.segments[at / SEGMENT].get_or_insert_with(|| vec![TableLine([0; LINE]); lines].into());
            let TableLine(line) = &mut segment[at % SEGMENT];
            let free = places(line, |entry| entry == 0).trailing_zeros() as usize;
            if free < ENTRIES {
                line[free] = tag(stirred) << 24 | id;
                self.entries += 1;
                return;
            }
            line[PASSED] += 1;
        }
    }

    fn remove(&mut self, stirred: u64, id: u32) -> bool {
        let wanted = tag(stirred) << 24 | id;
        for at in self.probe(stirred) {
            let Some(segment) = &mut self.segments[at / SEGMENT] else {
                return false;
            };
            let TableLine(line) = &mut segment[at % SEGMENT];
            let found = places(line, |entry| entry == wanted).trailing_zeros() as usize;
            if found < ENTRIES {
                line[found] = 0;
                self.entries -= 1;
                self.unpass(stirred, at);
                return true;
            }
            if line[PASSED] == 0 {
                return false;
            }
        }
        false
    }

    /// Updates the overflow counts of the lines before `to` after a removal.
    fn unpass(&mut self, stirred: u64, to: usize) {
        for at in self.probe(stirred).take_while(|&at| at != to) {
            if let Some(segment) = &mut self.segments[at / SEGMENT] {
                segment[at % SEGMENT].0[PASSED] -= 1;
            }
        }
    }

    /// Returns the lines to search, starting with the hash's own.
    fn probe(&self, stirred: u64) -> impl Iterator<Item = usize> + use<> {
        let first = self.home(stirred);
        (first..self.len).chain(0..first)
    }

    /// Maps the hash to one of any number of lines.
    fn home(&self, stirred: u64) -> usize {
        (((stirred >> 32) * self.len as u64) >> 32) as usize
    }

    fn bytes(&self) -> usize {
        let used = self
            .segments
            .iter()
            .flatten()
            .map(|lines| size_of_val(&**lines))
            .sum::<usize>();
        used + self.segments.len() * size_of::<Option<Box<[TableLine]>>>()
    }
}

/// Returns one bit per matching entry. Without branches, so that the compiler compares several at once.
fn places(line: &[TableEntry; LINE], is: impl Fn(TableEntry) -> bool) -> u32 {
    let bit = |places: u32, place: usize| places | u32::from(is(line[place])) << place;
    (0..ENTRIES).fold(0, bit)
}

/// Unpredictable hash function: two folded 128-bit multiplications with secret factors.
#[derive(Debug, Clone, Copy)]
struct HashSecret {
    mask: u64,
    first: u64,
    second: u64,
}

impl HashSecret {
    /// Draws the factors from the operating system's random numbers, by way of the standard library's hash tables.
    fn random() -> Self {
        let random = RandomState::new();
        Self {
            mask: random.hash_one(0_u8),
            first: random.hash_one(1_u8) | 1,
            second: random.hash_one(2_u8) | 1,
        }
    }

    /// Hashes a key. The second round removes the remaining pattern of keys with regular steps.
    fn stir(self, key: u64) -> u64 {
        folded(folded(key ^ self.mask, self.first) ^ self.mask, self.second)
    }
}

/// Multiplies, and combines both halves of the product by exclusive or.
fn folded(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    ((product >> 64) as u64) ^ (product as u64)
}

fn tag(stirred: u64) -> u32 {
    stirred as u32 & 0xff
}

#[cfg(test)]
mod tests;
