//! Reports of routers: those that came last.

use std::collections::BTreeMap;

/// Reports by their keys. Beyond `MOST`, the one that was renewed longest ago is dropped: a router has a new id at each
/// start, and the old one reports no more.
#[derive(Debug)]
pub(super) struct RecentReports<K, V, const MOST: usize> {
    /// Each with the number of its renewal.
    all: BTreeMap<K, (u64, V)>,
    number: u64,
}

impl<K, V, const MOST: usize> Default for RecentReports<K, V, MOST> {
    fn default() -> Self {
        let (all, number) = (BTreeMap::new(), 0);
        Self { all, number }
    }
}

impl<K: Ord + Clone, V, const MOST: usize> RecentReports<K, V, MOST> {
    /// Adds a report, or renews it.
    pub(super) fn set(&mut self, key: K, report: V) {
        self.number += 1;
        self.all.insert(key, (self.number, report));
        if self.all.len() > MOST {
            let oldest = self.all.iter().min_by_key(|(_, (number, _))| *number);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.all.remove(&oldest);
            }
        }
    }

    /// Returns all reports.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.all.iter().map(|(key, (_, report))| (key, report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_that_was_renewed_longest_ago_gives_way() {
        let mut reports = RecentReports::<u8, char, 3>::default();
        for (key, report) in [(1, 'a'), (2, 'b'), (3, 'c'), (1, 'd'), (4, 'e')] {
            reports.set(key, report);
        }
        let all: Vec<_> = reports.iter().collect();
        assert_eq!(all, [(&1, &'d'), (&3, &'c'), (&4, &'e')]);
    }
}
