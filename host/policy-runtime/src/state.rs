//! Policy state: a key-value store outside the instances. It survives their faults and the replacement of the
//! component.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use routing::StateRefusal as Refusal;

use crate::sessions::{SessionEntry, Sessions};

/// Most keys per policy.
const MAX_KEYS: usize = 4096;
/// Longest key, in bytes.
const MAX_KEY: usize = 256;
/// Longest value, in bytes.
const MAX_VALUE: usize = 16 << 10;
/// Number of shards; each has a lock.
const SHARDS: usize = 16;
/// Bytes of a counter.
const COUNTER: usize = size_of::<i64>();

type StateShard = HashMap<Box<str>, Box<[u8]>>;

/// Key-value state and sessions of one policy, shared by its instances. The caller keeps it by the policy's name and
/// passes it to every load of that name. A counter is a value of 8 bytes, little endian.
#[derive(Debug, Default)]
pub struct PolicyState {
    shards: [Mutex<StateShard>; SHARDS],
    /// Number of keys over all shards.
    keys: AtomicUsize,
    hasher: RandomState,
    changes: AtomicU64,
    sessions: Sessions,
}

/// Copy of a policy's state at about one moment: each value is consistent, but two of them may be of different
/// moments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateSnapshot {
    /// Keys and values, sorted by key.
    pub values: Vec<(Box<str>, Vec<u8>)>,
    /// Sessions, the most recently used last.
    pub sessions: Vec<SessionEntry>,
}

impl PolicyState {
    /// Returns the value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.shard(key).get(key).map(|value| value.to_vec())
    }

    /// Replaces the whole value.
    ///
    /// # Errors
    /// [`Refusal`] if a limit is reached; nothing changes then.
    pub fn set(&self, key: &str, value: Vec<u8>) -> Result<(), Refusal> {
        if value.len() > MAX_VALUE {
            return Err(Refusal::ValueTooLong);
        }
        let mut shard = self.shard(key);
        match shard.get_mut(key) {
            Some(present) => *present = value.into(),
            None => {
                self.admit(key)?;
                shard.insert(key.into(), value.into());
            }
        }
        self.changed();
        Ok(())
    }

    /// Adds to a counter, which starts at 0, and returns the new value. Wraps at 64 bits.
    ///
    /// # Errors
    /// [`Refusal`] if a limit is reached or the value is not a counter; nothing changes then.
    pub fn add(&self, key: &str, by: i64) -> Result<i64, Refusal> {
        let mut shard = self.shard(key);
        let sum = match shard.get_mut(key) {
            Some(present) => {
                let counter: [u8; COUNTER] = (**present).try_into().map_err(|_| Refusal::NotACounter)?;
                let sum = i64::from_le_bytes(counter).wrapping_add(by);
                present.copy_from_slice(&sum.to_le_bytes());
                sum
            }
            None => {
                self.admit(key)?;
                shard.insert(key.into(), by.to_le_bytes().into());
                by
            }
        };
        self.changed();
        Ok(sum)
    }

    /// Removes a key.
    pub fn delete(&self, key: &str) {
        if self.shard(key).remove(key).is_some() {
            self.keys.fetch_sub(1, Ordering::Relaxed);
            self.changed();
        }
    }

    /// Returns its sessions.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Returns the number of possible changes, to detect an outdated copy.
    #[must_use]
    pub fn changes(&self) -> u64 {
        let changes = self.changes.load(Ordering::Relaxed);
        changes.wrapping_add(self.sessions.changes())
    }

    /// Returns a copy of everything. Each lock is held only for a value or the keys of a shard.
    #[must_use]
    pub fn remembered(&self, now_us: u64) -> StateSnapshot {
        let mut keys: Vec<Box<str>> = Vec::with_capacity(self.keys());
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            keys.extend(shard.keys().cloned());
        }
        keys.sort_unstable();
        let values = keys.into_iter();
        StateSnapshot {
            values: values
                .filter_map(|key| Some((self.get(&key)?, key)))
                .map(|(value, key)| (key, value))
                .collect(),
            sessions: self.sessions.entries(now_us),
        }
    }

    /// Records a change after it was made, so that a copy made in between is outdated.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Reserves space for a new key.
    fn admit(&self, key: &str) -> Result<(), Refusal> {
        if key.len() > MAX_KEY {
            return Err(Refusal::KeyTooLong);
        }
        self.keys
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |keys| {
                (keys < MAX_KEYS).then_some(keys + 1)
            })
            .map(drop)
            .map_err(|_| Refusal::Full)
    }

    fn shard(&self, key: &str) -> MutexGuard<'_, StateShard> {
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_8_bytes_and_other_bytes_are_not_one() {
        let state = PolicyState::default();
        assert_eq!(state.add("turn", 3), Ok(3));
        assert_eq!(state.add("turn", -1), Ok(2));
        assert_eq!(state.get("turn"), Some(2_i64.to_le_bytes().to_vec()));
        state.set("text", b"abc".to_vec()).unwrap();
        assert_eq!(state.add("text", 1), Err(Refusal::NotACounter));
        state.set("turn", i64::MAX.to_le_bytes().to_vec()).unwrap();
        assert_eq!(state.add("turn", 1), Ok(i64::MIN));
    }

    #[test]
    fn every_limit_refuses_and_a_deleted_key_makes_room() {
        let state = PolicyState::default();
        assert_eq!(state.set(&"k".repeat(257), vec![]), Err(Refusal::KeyTooLong));
        assert_eq!(state.set("k", vec![0; MAX_VALUE + 1]), Err(Refusal::ValueTooLong));
        for key in 0..MAX_KEYS {
            state.set(&key.to_string(), vec![1]).unwrap();
        }
        assert_eq!(state.add("one more", 1), Err(Refusal::Full));
        state.set("7", vec![2]).unwrap();
        state.delete("7");
        state.delete("7");
        assert_eq!(state.add("one more", 1), Ok(1));
        assert_eq!(state.add("yet one", 1), Err(Refusal::Full));
    }

    #[test]
    fn no_addition_is_lost_between_threads() {
        let state = PolicyState::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).all(|_| state.add("n", 1).is_ok()));
            }
        });
        assert_eq!(state.add("n", 0), Ok(4000));
    }
}
