//! Workers and policies that a log file describes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use routing::{WorkerId, WorkerSpec};

use crate::call::{LoggedWorker, Subject};

/// Number of described workers at which removed ones are first purged.
const MIN_PURGE: usize = 1_024;
/// Maximum number of described policies. Beyond it, all are described again.
const MAX_POLICIES: usize = 256;

/// Workers and policies that the current file describes.
pub(crate) struct Described {
    workers: HashMap<WorkerId, Weak<WorkerSpec>>,
    /// Number of workers at which removed ones are purged.
    purge_at: usize,
    policies: Vec<Subject>,
}

impl Default for Described {
    fn default() -> Self {
        Self {
            workers: HashMap::new(),
            purge_at: MIN_PURGE,
            policies: Vec::new(),
        }
    }
}

impl Described {
    /// Returns whether the worker must be described before its next use.
    pub(crate) fn is_new(&mut self, worker: &LoggedWorker) -> bool {
        let before = self.workers.insert(worker.id, Arc::downgrade(&worker.spec));
        if self.workers.len() >= self.purge_at {
            // Ids are never reused.
            self.workers.retain(|_, spec| spec.strong_count() > 0);
            self.purge_at = MIN_PURGE.max(2 * self.workers.len());
        }
        let before = before.and_then(|before| before.upgrade());
        before.is_none_or(|before| !Arc::ptr_eq(&before, &worker.spec) && before != worker.spec)
    }

    /// Returns the id of a policy, and whether it must be described before its next use.
    pub(crate) fn policy(&mut self, subject: &Subject) -> (u32, bool) {
        let id = |at: usize| u32::try_from(at + 1).unwrap_or(u32::MAX);
        if let Some(at) = self.policies.iter().position(|known| known == subject) {
            return (id(at), false);
        }
        if self.policies.len() >= MAX_POLICIES {
            self.policies.clear();
        }
        self.policies.push(subject.clone());
        (id(self.policies.len() - 1), true)
    }
}

#[cfg(test)]
mod tests {
    use routing::Worker;

    use super::*;

    #[test]
    fn removed_workers_are_purged() {
        let worker = |id: u32| {
            let spec = WorkerSpec::mixed("w", "http://w");
            LoggedWorker::of(&Worker::new(WorkerId(id), spec))
        };
        let mut described = Described::default();
        let stays = worker(0);
        assert!(described.is_new(&stays) && !described.is_new(&stays));
        for id in 1..10_000 {
            let leaves = worker(id);
            assert!(described.is_new(&leaves));
            assert_eq!(Arc::strong_count(&leaves.spec), 1);
        }
        assert!(described.workers.len() <= MIN_PURGE);
        assert!(!described.is_new(&stays));
    }
}
