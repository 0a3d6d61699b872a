//! Decoded answer: its good workers, and the faults of the other entries.

use std::collections::BTreeSet;

use serde::Serialize;
use thiserror::Error;

use crate::worker::{DiscoveredWorker, WorkerDefaults};

/// Most faults that are kept of an answer; the rest is counted.
const MOST_FAULTS: usize = 20;
/// Longest entry that a fault repeats, in characters.
const LONGEST_ENTRY: usize = 120;

/// Decoded answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decoded {
    /// Good workers, each URL once, in the order of their URLs.
    pub workers: Vec<DiscoveredWorker>,
    /// First faults.
    pub faults: Vec<EntryFault>,
    /// Number of entries with a fault.
    pub fault_count: usize,
}

/// Fault of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryFault {
    /// The entry, shortened.
    pub entry: String,
    /// Reason for which it is left out.
    pub why: String,
}

/// Error of an answer that cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The answer is not JSON of the expected shape.
    #[error("the answer is not {expected}: {why}")]
    Shape {
        /// Name of the format.
        expected: &'static str,
        /// Error of the parser.
        why: String,
    },
    /// The answer has too many workers.
    #[error("the answer has {found} workers, and `max-workers` is {most}")]
    TooMany {
        /// Workers in the answer.
        found: usize,
        /// The bound.
        most: usize,
    },
    /// The answer has entries, and each of them has a fault.
    #[error("none of the answer's {count} entries can be used; the first is `{entry}`: {why}")]
    NoneUsable {
        /// Number of entries.
        count: usize,
        /// First entry.
        entry: String,
        /// Its fault.
        why: String,
    },
}

impl Decoded {
    /// Adds a fault. Those beyond the first are counted only.
    pub fn fault(&mut self, entry: &str, why: impl Into<String>) {
        self.fault_count += 1;
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(EntryFault {
                entry: entry.chars().take(LONGEST_ENTRY).collect(),
                why: why.into(),
            });
        }
    }

    /// Adds a worker, or the fault of its entry.
    pub fn entry(&mut self, entry: &str, worker: Result<DiscoveredWorker, String>) {
        match worker {
            Ok(worker) => self.workers.push(worker),
            Err(why) => self.fault(entry, why),
        }
    }

    /// Adds the workers and faults of a part of the answer.
    pub(crate) fn extend(&mut self, part: &Self) {
        self.workers.extend(part.workers.iter().cloned());
        let room = MOST_FAULTS.saturating_sub(self.faults.len());
        self.faults.extend(part.faults.iter().take(room).cloned());
        self.fault_count += part.fault_count;
    }

    /// Returns the answer in order, each URL once: the first entry counts.
    ///
    /// # Errors
    /// [`AnswerError::TooMany`], or [`AnswerError::NoneUsable`] for an answer of faults only.
    pub fn finish(mut self, defaults: &WorkerDefaults) -> Result<Self, AnswerError> {
        let mut urls = BTreeSet::new();
        self.workers.retain(|worker| urls.insert(worker.url.clone()));
        self.workers.sort_by(|one, other| one.url.cmp(&other.url));
        if self.workers.len() > defaults.max_workers {
            return Err(AnswerError::TooMany {
                found: self.workers.len(),
                most: defaults.max_workers,
            });
        }
        match self.faults.first() {
            Some(first) if self.workers.is_empty() => Err(AnswerError::NoneUsable {
                count: self.fault_count,
                entry: first.entry.clone(),
                why: first.why.clone(),
            }),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::tests::defaults;

    fn worker(address: &str) -> DiscoveredWorker {
        DiscoveredWorker::at(address, &defaults()).unwrap()
    }

    #[test]
    fn an_answer_is_in_order_with_each_url_once() {
        let mut decoded = Decoded::default();
        for address in ["b:1", "a:1", "b:1"] {
            decoded.entry(address, Ok(worker(address)));
        }
        let done = decoded.finish(&defaults()).unwrap();
        assert_eq!(done.workers, [worker("a:1"), worker("b:1")]);
    }

    #[test]
    fn an_answer_with_too_many_workers_is_refused() {
        let bound = WorkerDefaults {
            max_workers: 1,
            ..defaults()
        };
        let mut decoded = Decoded::default();
        decoded.entry("a:1", Ok(worker("a:1")));
        decoded.entry("b:1", Ok(worker("b:1")));
        let refused = decoded.finish(&bound).unwrap_err();
        assert_eq!(refused, AnswerError::TooMany { found: 2, most: 1 });
    }

    #[test]
    fn an_answer_of_faults_alone_is_refused_and_an_empty_one_is_not() {
        let mut decoded = Decoded::default();
        (0..50).for_each(|number| decoded.fault(&number.to_string(), "bad"));
        assert_eq!((decoded.faults.len(), decoded.fault_count), (MOST_FAULTS, 50));
        let refused = decoded.finish(&defaults()).unwrap_err();
        assert!(matches!(refused, AnswerError::NoneUsable { count: 50, .. }));
        assert!(Decoded::default().finish(&defaults()).is_ok());
    }
}
