//! Bytes that this router's decisions need: stored one at a time, beside the task's other work, and again with backoff.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use agreement::{AgreedKey, AgreedStore, ObjectWrite, StoreError};
use tracing::warn;

use super::objects::{Attempts, ObjectTable, OfferedObjects};

/// Bytes that this router offers, and the decisions that need them.
#[derive(Debug, Default)]
pub(super) struct ObjectOffers {
    offered: ObjectTable<OfferedObject>,
    /// Bytes of followed decisions, until the store is found to have them. All of them: no other router may have them.
    kept: BTreeMap<String, OfferedObject>,
    /// Hashes of the bytes that a decision needs.
    needs: BTreeMap<AgreedKey, Vec<String>>,
    running: Option<RunningWrite>,
}

#[derive(Debug)]
struct OfferedObject {
    bytes: Arc<Vec<u8>>,
    is_stored: bool,
    /// Set once it was stored: if the store lost it, it is stored again without a decision that waits.
    was_stored: bool,
    attempts: Attempts,
    /// Reason of the last failed attempt.
    problem: Option<String>,
}

struct RunningWrite {
    sha256: String,
    write: ObjectWrite,
}

impl fmt::Debug for RunningWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningWrite")
            .field("sha256", &self.sha256)
            .finish_non_exhaustive()
    }
}

impl OfferedObject {
    fn new(bytes: Arc<Vec<u8>>, was_stored: bool) -> Self {
        Self {
            bytes,
            is_stored: false,
            was_stored,
            attempts: Attempts::new(),
            problem: None,
        }
    }
}

impl ObjectOffers {
    /// Replaces the bytes of followed decisions, which the store may have lost.
    pub(super) fn keep(&mut self, objects: OfferedObjects) {
        let mut before = std::mem::take(&mut self.kept);
        for (sha256, bytes) in objects {
            // Attempts at the same bytes go on.
            let object = before.remove(&sha256);
            let object = object.unwrap_or_else(|| OfferedObject::new(bytes, true));
            self.kept.insert(sha256, object);
        }
    }

    /// Adds bytes.
    pub(super) fn add(&mut self, objects: OfferedObjects) {
        for (sha256, bytes) in objects {
            // Attempts at the same bytes go on.
            let before = self.offered.take(&sha256);
            let object = OfferedObject::new(bytes, false);
            let object = before.filter(|before| !before.is_stored).unwrap_or(object);
            self.offered.set(&sha256, object);
        }
    }

    /// Replaces the needs of a decision.
    pub(super) fn need(&mut self, key: &AgreedKey, hashes: Vec<String>) {
        if hashes.is_empty() {
            self.needs.remove(key);
        } else {
            self.needs.insert(key.clone(), hashes);
        }
    }

    /// Forgets the needs of decisions that are not kept any more.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&AgreedKey) -> bool) {
        self.needs.retain(|key, _| is_kept(key));
    }

    /// Records that the store opened: it may have lost the bytes.
    pub(super) fn opened(&mut self) {
        for (_, object) in self.offered.all_mut() {
            object.is_stored = false;
        }
    }

    /// Ends the running write, which begins again later: the store is away.
    pub(super) fn interrupt(&mut self) {
        self.running = None;
    }

    /// Begins to store the first bytes that are due, unless others are being stored.
    pub(super) fn begin<S: AgreedStore>(&mut self, store: &S) {
        if self.running.is_some() {
            return;
        }
        let needs = &self.needs;
        let is_needed = |sha256: &str| needs.values().flatten().any(|needed| needed == sha256);
        let kept = self.kept.iter().map(|(sha256, object)| (&**sha256, object));
        let due = self.offered.all().chain(kept).find(|(sha256, object)| {
            let is_wanted = object.was_stored || is_needed(sha256);
            !object.is_stored && object.attempts.is_due() && is_wanted
        });
        self.running = due.map(|(sha256, object)| RunningWrite {
            sha256: sha256.to_owned(),
            write: store.put_object(sha256, Arc::clone(&object.bytes)),
        });
    }

    /// Waits until bytes are stored, or failed to be; for ever if none are being stored. Dropping the future loses
    /// nothing.
    pub(super) async fn finished(&mut self) -> (String, Result<(), StoreError>) {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let outcome = running.write.as_mut().await;
        let sha256 = std::mem::take(&mut running.sha256);
        self.running = None;
        (sha256, outcome)
    }

    /// Takes the end of a write in. Returns whether the reason for which decisions wait changed.
    pub(super) fn take_in(&mut self, sha256: &str, outcome: Result<(), StoreError>) -> bool {
        if outcome.is_ok() {
            self.kept.remove(sha256);
        }
        let why = outcome.err().map(|error| error.to_string());
        let (mut is_first, mut is_new) = (false, false);
        // The same bytes may be offered and kept: an attempt counts for both.
        let offered = self.offered.get_mut(sha256);
        for object in offered.into_iter().chain(self.kept.get_mut(sha256)) {
            is_new |= object.problem != why;
            object.problem.clone_from(&why);
            if why.is_some() {
                is_first |= object.attempts.fail() == 1;
            } else {
                (object.is_stored, object.was_stored) = (true, true);
                object.attempts = Attempts::new();
            }
        }
        if let Some(why) = why.filter(|_| is_first) {
            warn!(
                sha256,
                why,
                "failed to store the bytes of a policy; decisions that need them wait, and it is tried again"
            );
        }
        is_new
    }

    /// Returns whether the store has the bytes that a decision needs. Bytes beyond the most are not waited for.
    pub(super) fn is_ready(&self, key: &AgreedKey) -> bool {
        self.missing(key).next().is_none()
    }

    /// Returns the reason for which a decision waits, if the store refused its bytes.
    pub(super) fn problem(&self, key: &AgreedKey) -> Option<&str> {
        self.missing(key).find_map(|object| object.problem.as_deref())
    }

    fn missing(&self, key: &AgreedKey) -> impl Iterator<Item = &OfferedObject> {
        let needs = self.needs.get(key).into_iter().flatten();
        let offered = needs.filter_map(|sha256| self.offered.get(sha256));
        offered.filter(|object| !object.is_stored)
    }
}
