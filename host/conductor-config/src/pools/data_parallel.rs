//! `data-parallel` of a worker: several engines behind one URL, each with a cache of its own.

use std::ops::RangeInclusive;

use routing::DpRank;

use crate::document::section::Section;
use crate::document::value::Item;

/// `data-parallel` of a worker. Each rank is a worker: `NAME@RANK`, at the same URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataParallel {
    /// Number of ranks, at least 1.
    pub ranks: u16,
    /// The engine's number of the first rank.
    pub first: u16,
}

/// Most ranks of one worker.
pub(crate) const MOST_RANKS: u64 = 256;
/// Range of first ranks.
pub(crate) const FIRST_RANKS: RangeInclusive<u64> = 0..=u16::MAX as u64 - MOST_RANKS;

impl DataParallel {
    /// Returns the numbers of its ranks.
    pub fn ranks(&self) -> impl Iterator<Item = DpRank> + use<> {
        (self.first..=self.first.saturating_add(self.ranks.saturating_sub(1))).map(DpRank)
    }
}

/// Returns the name of a worker's rank.
#[must_use]
pub fn rank_name(worker: &str, rank: DpRank) -> String {
    format!("{worker}@{}", rank.0)
}

pub(crate) fn read(item: &Item<'_>) -> Option<DataParallel> {
    if item.value.as_table().is_none() {
        let help = "write data-parallel = { ranks = 2 }, with the number the engine was started with";
        return item.wrong_type_but("a table", Some(help.to_owned()));
    }
    let mut section = Section::of(item, "`data-parallel`".to_owned())?;
    let ranks = section.required("ranks", "2, with the number the engine was started with");
    let ranks = ranks.and_then(|item| item.count(&(1..=MOST_RANKS)));
    let first = section.count("first", 0, FIRST_RANKS);
    section.finish();
    Some(DataParallel {
        ranks: u16::try_from(ranks?).expect("within a range that ends at a u16"),
        first: u16::try_from(first).expect("within a range that ends at a u16"),
    })
}
