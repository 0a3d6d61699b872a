//! Bytes of policies, by their SHA-256: those that this router offers, and those that it fetches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Most objects of each kind. The oldest is dropped.
const MOST: usize = 16;
/// Pause after the first failed attempt; it doubles with each further one ...
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// ... up to this.
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// State of bytes that this router needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectState {
    /// They are being fetched.
    Working,
    /// They are here. The hash is checked.
    Ready(Arc<Vec<u8>>),
    /// They cannot be had, for this reason. They are fetched again when the entries change. If the store did not give
    /// them, attempts go on, and they may still come.
    Failed(String),
}

/// Objects by their hashes, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct ObjectTable<T>(Vec<(String, T)>);

impl<T> Default for ObjectTable<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ObjectTable<T> {
    pub(crate) fn set(&mut self, sha256: &str, object: T) {
        self.0.retain(|(known, _)| known != sha256);
        self.0.push((sha256.to_owned(), object));
        if self.0.len() > MOST {
            self.0.remove(0);
        }
    }

    pub(crate) fn get(&self, sha256: &str) -> Option<&T> {
        let mut all = self.0.iter();
        all.find(|(known, _)| known == sha256).map(|(_, object)| object)
    }

    pub(crate) fn get_mut(&mut self, sha256: &str) -> Option<&mut T> {
        let mut all = self.0.iter_mut();
        all.find(|(known, _)| known == sha256).map(|(_, object)| object)
    }

    pub(crate) fn take(&mut self, sha256: &str) -> Option<T> {
        let place = self.0.iter().position(|(known, _)| known == sha256)?;
        Some(self.0.remove(place).1)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&str, &T) -> bool) {
        self.0.retain(|(sha256, object)| keep(sha256, object));
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(sha256, object)| (&**sha256, object))
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (&str, &mut T)> {
        self.0.iter_mut().map(|(sha256, object)| (&**sha256, object))
    }
}

/// Attempts to read or to store bytes.
#[derive(Debug)]
pub(super) struct Attempts {
    failures: u32,
    /// Time of the next attempt.
    due: Instant,
}

impl Attempts {
    /// Returns attempts of which the first is due.
    pub(super) fn new() -> Self {
        let (failures, due) = (0, Instant::now());
        Self { failures, due }
    }

    pub(super) fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }

    /// Records a failed attempt. Returns the number of failed ones.
    pub(super) fn fail(&mut self) -> u32 {
        let pause = (FIRST_PAUSE * 2_u32.saturating_pow(self.failures)).min(LAST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.due = Instant::now() + pause;
        self.failures
    }
}

/// Bytes to store, by their SHA-256.
pub(crate) type OfferedObjects = BTreeMap<String, Arc<Vec<u8>>>;
