//! Live feeds: the workers whose KV-cache events are flowing. They distinguish "holds nothing" (0) from "not known"
//! (NaN).

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use routing::WorkerId;

/// A set of workers, changed by the composition root as feeds come and go, read once a decision.
///
/// Ids count up from 0, so a bit for each is small: 128 bytes for the first 1,024 workers.
#[derive(Debug, Default)]
pub struct LiveFeeds(RwLock<Vec<u64>>);

/// Set of live feeds at one moment.
#[derive(Debug)]
pub(crate) struct LiveNow<'a>(RwLockReadGuard<'a, Vec<u64>>);

impl LiveFeeds {
    /// Sets whether a worker's feed is live from now on.
    pub fn set(&self, worker: WorkerId, live: bool) {
        let (word, bit) = place(worker);
        let mut words = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if live && words.len() <= word {
            words.resize(word + 1, 0);
        }
        if let Some(bits) = words.get_mut(word) {
            *bits = if live { *bits | bit } else { *bits & !bit };
        }
    }

    /// Returns `true` if a worker's feed is live.
    #[must_use]
    pub fn is_live(&self, worker: WorkerId) -> bool {
        self.now().contains(worker)
    }

    /// Locks the set for reading. Changes wait while the result lives: keep it for one decision only.
    pub(crate) fn now(&self) -> LiveNow<'_> {
        LiveNow(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LiveNow<'_> {
    pub(crate) fn contains(&self, worker: WorkerId) -> bool {
        let (word, bit) = place(worker);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

fn place(worker: WorkerId) -> (usize, u64) {
    (worker.0 as usize / 64, 1 << (worker.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_live_from_its_setting_to_its_clearing() {
        let feeds = LiveFeeds::default();
        feeds.set(WorkerId(70), false);
        assert!(!feeds.is_live(WorkerId(70)));
        feeds.set(WorkerId(70), true);
        assert!(feeds.is_live(WorkerId(70)));
        assert!(!feeds.is_live(WorkerId(6)));
        feeds.set(WorkerId(70), false);
        assert!(!feeds.is_live(WorkerId(70)));
    }
}
