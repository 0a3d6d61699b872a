//! From 64-bit hashes to 24-bit ids, at 5 to 10 bytes an entry and one cache miss a lookup.
//!
//! A table stores neither hashes nor keys: 8 bits of the hash tell most wrong ids apart and the caller, who has the key
//! of an id at hand, tells the rest. Fifteen entries share a cache line; entries that do not fit into their line go to one of
//! the next, which the line counts in its last place (as F14 does), so that nothing is left behind by a removal.
//!
//! A full table grows without a pause: a larger one takes its place, and every later insertion moves a few ids over, in the
//! order of their numbers, which is how their keys lie in memory. A table that is nearly empty is replaced by a smaller one
//! in the same way, where nothing is inserted by [`IdTable::tend`].
//!
//! Publishers choose the names of blocks and clients choose tokens, so every table hashes its keys again under a secret of its
//! own: chosen keys spread over the lines as random ones do. Equal keys share a line whatever the secret; the caller bounds
//! how many there are.

use std::hash::{BuildHasher, RandomState};

/// Ids are below this; 0 is no id.
pub(crate) const MAX_ID: u32 = 1 << 24;

const LINE: usize = 16;
/// Entries of a line; the place after them counts entries that had to go past it.
const ENTRIES: usize = 15;
const PASSED: usize = ENTRIES;
/// Most hashes of one id.
const MOST_HASHES: usize = 16;
/// Lines allocated together, when the first of them is needed.
const SEGMENT: usize = 1024;
/// 12 entries in 15 may be taken.
const LOAD: usize = 12;
/// Ids moved over with every insertion: growing ends long before the next time.
const MOVES: u32 = 2;
/// A table is moved to a smaller one that is at least so many times smaller.
const SHRINK: usize = 4;
/// Ids and hashes moved over at a time when nothing is inserted.
const TENDED_IDS: usize = 1024;
const TENDED_HASHES: usize = 64;

/// `tag << 24 | id`, or 0.
type Entry = u32;

/// Where an id's hashes can be looked up.
pub(crate) trait HashesOf {
    /// Tells every hash under which the id was added and not removed.
    fn tell(&self, id: u32, to: &mut dyn FnMut(u64));

    /// One more than the highest id.
    fn end(&self) -> u32;
}

/// A multimap from hashes to ids.
#[derive(Debug)]
pub(crate) struct IdTable {
    secret: Secret,
    lines: Lines,
    /// While growing: the table before.
    old: Option<Growing>,
    /// Of the table before the last growth: given back one by one, as all at once would take long.
    spent: Vec<Option<Box<[Line]>>>,
    /// As many lines as will ever be needed.
    most_lines: usize,
}

#[derive(Debug)]
struct Growing {
    lines: Lines,
    /// The next id to move.
    next: u32,
    /// Ids from here on were never in the table before.
    end: u32,
    /// One bit an id: moved out of turn.
    moved: Vec<u64>,
}

impl IdTable {
    /// A table that never has more than `most` entries.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            secret: Secret::random(),
            lines: Lines::new(1),
            old: None,
            spent: Vec::new(),
            most_lines: most.div_ceil(LOAD).saturating_add(1),
        }
    }

    /// The first answer that `accept` gives for an id under this hash. It is also asked about a few ids that are not, and
    /// while growing about some twice.
    pub(crate) fn find<R>(&self, hash: u64, mut accept: impl FnMut(u32) -> Option<R>) -> Option<R> {
        let stirred = self.secret.stir(hash);
        let found = self.lines.find(stirred, &mut accept);
        match &self.old {
            Some(old) if found.is_none() => old.lines.find(stirred, &mut accept),
            _ => found,
        }
    }

    /// Brings the hash's line near. The answer means nothing: it only keeps the read from being left out.
    pub(crate) fn touch(&self, hash: u64) -> u32 {
        self.lines.touch(self.secret.stir(hash))
    }

    /// Adds an id, of which `hashes` does not yet tell this hash.
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

    /// Takes out an id that was added under this hash; false if it was not.
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

    /// Gives back memory of a table that few entries are left in, a little at a time; returns whether there is more to do.
    pub(crate) fn tend(&mut self, hashes: &impl HashesOf) -> bool {
        if self.old.is_some() {
            let mut moved = 0;
            for _ in 0..TENDED_IDS {
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
        // Twice as many entries fit, and those that are inserted while the ids move.
        let room = self.lines.entries * 2 + (hashes.end() / MOVES) as usize;
        let enough = room.div_ceil(LOAD).max(1);
        let is_sparse = enough * SHRINK <= self.lines.len;
        if is_sparse {
            self.move_to(Lines::new(enough), hashes);
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
        self.move_to(Lines::new((len * 2).min(enough)), hashes);
    }

    /// Begins to move all entries over.
    fn move_to(&mut self, lines: Lines, hashes: &impl HashesOf) {
        let end = hashes.end();
        self.old = Some(Growing {
            lines: std::mem::replace(&mut self.lines, lines),
            next: 1,
            end,
            moved: vec![0; (end as usize).div_ceil(64)],
        });
    }

    /// Moves the next id over; returns how many hashes it has.
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
        hashes.tell(id, &mut |hash| {
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
        // The old entries stay: asked about them, the id denies what it no longer has.
        for &stirred in stirred {
            self.lines.insert(stirred, id);
        }
        count
    }
}

impl Growing {
    fn is_moved(&self, id: u32) -> bool {
        self.is_moved_out_of_turn(id) || id < self.next
    }

    fn is_moved_out_of_turn(&self, id: u32) -> bool {
        id >= self.end || self.moved[id as usize / 64] >> (id % 64) & 1 == 1
    }
}

/// A table of fixed size.
#[derive(Debug)]
struct Lines {
    segments: Vec<Option<Box<[Line]>>>,
    len: usize,
    entries: usize,
}

/// One cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line([Entry; LINE]);

impl Lines {
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
            let Line(line) = &self.segments[at / SEGMENT].as_ref()?[at % SEGMENT];
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
        let at = self.home(stirred);
        let segment = self.segments[at / SEGMENT].as_ref();
        segment.map_or(0, |lines| lines[at % SEGMENT].0[PASSED])
    }

    /// There is room: the caller saw to that.
    fn insert(&mut self, stirred: u64, id: u32) {
        for at in self.probe(stirred) {
            let lines = SEGMENT.min(self.len - at / SEGMENT * SEGMENT);
            let segment =
                self.segments[at / SEGMENT].get_or_insert_with(|| vec![Line([0; LINE]); lines].into());
            let Line(line) = &mut segment[at % SEGMENT];
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
            let Line(line) = &mut segment[at % SEGMENT];
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

    /// An entry that had gone past every line before `to` is gone.
    fn unpass(&mut self, stirred: u64, to: usize) {
        for at in self.probe(stirred).take_while(|&at| at != to) {
            if let Some(segment) = &mut self.segments[at / SEGMENT] {
                segment[at % SEGMENT].0[PASSED] -= 1;
            }
        }
    }

    /// The lines to look at, from the one that the hash belongs to.
    fn probe(&self, stirred: u64) -> impl Iterator<Item = usize> + use<> {
        let first = self.home(stirred);
        (first..self.len).chain(0..first)
    }

    /// Spread over the lines, however many there are.
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
        used + self.segments.len() * size_of::<Option<Box<[Line]>>>()
    }
}

/// One bit for each entry that is so: without branches, for the compiler to compare several at once.
fn places(line: &[Entry; LINE], is: impl Fn(Entry) -> bool) -> u32 {
    let bit = |places: u32, place: usize| places | u32::from(is(line[place])) << place;
    (0..ENTRIES).fold(0, bit)
}

/// A hash function that others cannot predict: two multiplications to 128 bits, folded, with factors of the table's own.
#[derive(Debug, Clone, Copy)]
struct Secret {
    mask: u64,
    first: u64,
    second: u64,
}

impl Secret {
    /// Draws a secret from the operating system's random numbers, by way of the standard library's hash tables.
    fn random() -> Self {
        let random = RandomState::new();
        Self {
            mask: random.hash_one(0_u8),
            first: random.hash_one(1_u8) | 1,
            second: random.hash_one(2_u8) | 1,
        }
    }

    /// Hashes a key. The second round breaks what regular steps between keys leave of the first.
    fn stir(self, key: u64) -> u64 {
        folded(folded(key ^ self.mask, self.first) ^ self.mask, self.second)
    }
}

/// Returns both halves of the product, one upon the other.
fn folded(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    ((product >> 64) as u64) ^ (product as u64)
}

fn tag(stirred: u64) -> u32 {
    stirred as u32 & 0xff
}

#[cfg(test)]
mod tests;
