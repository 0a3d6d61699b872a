//! Lookahead: reads the lines of several hashes together, so that their cache misses overlap.

use super::{IdTable, LINE, MAX_ID, PASSED, TableLine, TableLines, places, tag};

/// Hashes that are looked up together.
pub(crate) const AHEAD: usize = 16;

static NO_LINE: TableLine = TableLine([0; LINE]);

/// The lines of some hashes.
pub(crate) struct LinesAhead<'a> {
    stirred: [u64; AHEAD],
    lines: [&'a TableLine; AHEAD],
    /// The same of the table before, while the table grows.
    old: Option<[&'a TableLine; AHEAD]>,
    count: usize,
}

impl IdTable {
    /// Finds the lines of the first [`AHEAD`] hashes, without reading them.
    pub(crate) fn lines_ahead(&self, hashes: impl Iterator<Item = u64>) -> LinesAhead<'_> {
        let (mut stirred, mut count) = ([0; AHEAD], 0);
        for (stirred, hash) in stirred.iter_mut().zip(hashes) {
            *stirred = self.secret.stir(hash);
            count += 1;
        }
        LinesAhead {
            stirred,
            lines: self.lines.ahead(&stirred),
            old: self.old.as_ref().map(|old| old.lines.ahead(&stirred)),
            count,
        }
    }
}

impl TableLines {
    /// Returns the first line of each hash.
    fn ahead(&self, stirred: &[u64; AHEAD]) -> [&TableLine; AHEAD] {
        stirred.map(|stirred| self.line(stirred).unwrap_or(&NO_LINE))
    }
}

impl LinesAhead<'_> {
    /// Prefetches the lines. The result only keeps the compiler from removing the reads.
    pub(crate) fn touch(&self) -> u32 {
        let lines = self.lines.iter().chain(self.old.iter().flatten());
        lines.fold(0, |near: u32, line| near.wrapping_add(line.0[PASSED]))
    }

    /// Returns one bit per hash that no id is under, and that none gets by insertions of the hashes before it.
    pub(crate) fn absent(&self) -> u32 {
        let (mut absent, mut seen) = (0, 0_u64);
        for (at, &stirred) in self.stirred[..self.count].iter().enumerate() {
            let is_free = |line: &TableLine| line.0[PASSED] == 0 && tagged(line, stirred) == 0;
            let bit = 1 << (stirred >> 8 & 63);
            let is_absent = seen & bit == 0
                && is_free(self.lines[at])
                && self.old.as_ref().is_none_or(|old| is_free(old[at]));
            seen |= bit;
            absent |= u32::from(is_absent) << at;
        }
        absent
    }

    /// Reports the ids that may be under a hash that is not absent.
    pub(crate) fn other_ids(&self, absent: u32, mut to: impl FnMut(u32)) {
        let mut rest = !absent & ((1 << self.count) - 1);
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let TableLine(line) = self.lines[at];
            let mut places = tagged(self.lines[at], self.stirred[at]);
            while places != 0 {
                to(line[places.trailing_zeros() as usize] & (MAX_ID - 1));
                places &= places - 1;
            }
        }
    }
}

/// Returns one bit per entry of a line that may be of this hash.
fn tagged(line: &TableLine, stirred: u64) -> u32 {
    let tag = tag(stirred);
    places(&line.0, |entry| entry >> 24 == tag)
}
