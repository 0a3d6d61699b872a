//! Sessions of the last run that wait for their workers.
//!
//! A worker may join after the start, when its source answers. Its sessions wait for it for some minutes, and stay in
//! the file meanwhile.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use policy_runtime::{SessionEntry, Sessions, StateSnapshot};
use routing::WorkerId;

use super::saved_memory::{SavedMemory, SavedSession};
use super::worker_names::WorkerNames;

/// Time that sessions wait for their workers after the first are restored.
const PATIENCE_US: u64 = 10 * 60 * 1_000_000;

/// Sessions of the last run whose workers are not known.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitingSessions {
    /// The most recently used last.
    sessions: Vec<SavedSession>,
    /// End of the wait by the fleet's clock. `None` until the workers are known for the first time.
    until_us: Option<u64>,
}

/// Fleet at one moment.
pub(super) struct FleetMoment<'f> {
    /// Workers by name.
    pub(super) workers: BTreeMap<&'f str, WorkerId>,
    pub(super) now_us: u64,
    pub(super) now_unix_ms: u64,
}

impl WaitingSessions {
    pub(super) fn new(sessions: Vec<SavedSession>) -> Self {
        Self {
            sessions,
            until_us: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns true if the workers were known before, and some sessions were not of them.
    pub(super) fn has_begun(&self) -> bool {
        self.until_us.is_some() && !self.is_empty()
    }

    /// Moves the sessions of known workers to the policy. Keeps the others until their time or the wait is over, the
    /// most recently used ones up to the policy's limit.
    pub(super) fn place(&mut self, sessions: &Sessions, fleet: &FleetMoment<'_>) {
        let until_us = *(self.until_us).get_or_insert_with(|| fleet.now_us.saturating_add(PATIENCE_US));
        let mut known = Vec::new();
        for saved in std::mem::take(&mut self.sessions) {
            let Some(left) = saved.left_ms(fleet.now_unix_ms) else {
                continue;
            };
            match fleet.workers.get(&*saved.worker) {
                Some(worker) => known.push(SessionEntry {
                    session: saved.session,
                    worker: *worker,
                    left: Duration::from_millis(left),
                }),
                None if fleet.now_us < until_us => self.sessions.push(saved),
                None => {}
            }
        }
        sessions.restore(&known, fleet.now_us);
        let excess = self.sessions.len().saturating_sub(sessions.limit());
        self.sessions.drain(..excess);
    }

    /// Returns the content of a file: the policy's memory, and these sessions as older than its own. A session that was
    /// placed meanwhile is left out.
    pub(super) fn saved_with(
        self,
        remembered: StateSnapshot,
        names: &WorkerNames,
        now_unix_ms: u64,
    ) -> SavedMemory {
        let placed: HashSet<u64> = remembered.sessions.iter().map(|entry| entry.session).collect();
        let own = SavedMemory::of(remembered, names, now_unix_ms);
        let waits = |waiting: &SavedSession| {
            waiting.left_ms(now_unix_ms).is_some() && !placed.contains(&waiting.session)
        };
        let waiting = self.sessions.into_iter().filter(waits);
        SavedMemory {
            values: own.values,
            sessions: waiting.chain(own.sessions).collect(),
        }
    }
}
