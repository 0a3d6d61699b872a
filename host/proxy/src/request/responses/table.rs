//! Table of response ids: which worker made which response. The table is bounded, expiring, and sharded, so that
//! answers which end at the same time do not wait for each other.
//!
//! Ids are chosen by engines, and clients may request any id. The table therefore keeps hashes under a secret of this
//! process, taken over the client and the id. No client can fill one shard on purpose, and one client's ids are unknown
//! to another.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use routing::WorkerId;

use super::metrics::ResponseMetrics;
use crate::limits::edge_settings::ResponseLimits;

const SHARDS: usize = 16;

/// Key of a client's response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseKey<'a> {
    /// Name of the client. Empty where clients need no key.
    pub(crate) client: &'a str,
    pub(crate) id: &'a str,
}

/// Place of a response in the table: the hash of its key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseEntry(u128);

/// Bounded table of response ids, with expiry.
#[derive(Debug)]
pub(crate) struct ResponseTable {
    shards: [Mutex<Shard>; SHARDS],
    secrets: [RandomState; 2],
    pub(super) metrics: ResponseMetrics,
}

#[derive(Debug, Default)]
struct Shard {
    workers: HashMap<u128, StoredResponse>,
    /// Keys and their times, oldest first. Of a key that was stored again, only the last counts.
    order: VecDeque<(u128, Instant)>,
}

#[derive(Debug, Clone, Copy)]
struct StoredResponse {
    worker: WorkerId,
    stored: Instant,
    /// `true` once the tokens of the response are in the metrics.
    is_counted: bool,
}

impl ResponseTable {
    pub(crate) fn new(metrics: ResponseMetrics) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            secrets: [RandomState::new(), RandomState::new()],
            metrics,
        }
    }

    /// Records that a worker made a response.
    pub(crate) fn store(
        &self,
        key: ResponseKey<'_>,
        worker: WorkerId,
        limits: ResponseLimits,
        now: Instant,
    ) -> ResponseEntry {
        let most = limits.most.div_ceil(SHARDS);
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        let before = shard.workers.len();
        shard.forget(now, limits.ttl, most.saturating_sub(1));
        if most > 0 {
            let entry = StoredResponse {
                worker,
                stored: now,
                is_counted: false,
            };
            shard.workers.insert(hash, entry);
            shard.order.push_back((hash, now));
        }
        let after = shard.workers.len();
        drop(shard);
        self.metrics.size_changed(before, after);
        ResponseEntry(hash)
    }

    /// Returns the place of a response, known or not.
    pub(crate) fn entry(&self, key: ResponseKey<'_>) -> ResponseEntry {
        ResponseEntry(self.hash(key))
    }

    /// Records that the tokens of a response are counted. Returns `true` if it is known, and none were before.
    pub(crate) fn count_tokens(&self, entry: ResponseEntry) -> bool {
        let mut shard = self.shard(entry.0);
        let stored = shard.workers.get_mut(&entry.0);
        stored.is_some_and(|stored| !std::mem::replace(&mut stored.is_counted, true))
    }

    /// Returns the worker that made a response, while that is known. Removes what the limits no longer allow.
    pub(crate) fn find(
        &self,
        key: ResponseKey<'_>,
        limits: ResponseLimits,
        now: Instant,
    ) -> Option<WorkerId> {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        let before = shard.workers.len();
        shard.forget(now, limits.ttl, limits.most.div_ceil(SHARDS));
        let (after, found) = (shard.workers.len(), shard.workers.get(&hash).copied());
        drop(shard);
        self.metrics.size_changed(before, after);
        let is_known = |entry: &StoredResponse| now.saturating_duration_since(entry.stored) < limits.ttl;
        found.filter(is_known).map(|entry| entry.worker)
    }

    fn hash(&self, key: ResponseKey<'_>) -> u128 {
        let half = |secret: &RandomState| u128::from(secret.hash_one((key.client, key.id)));
        half(&self.secrets[0]) << 64 | half(&self.secrets[1])
    }

    fn shard(&self, hash: u128) -> MutexGuard<'_, Shard> {
        let at = (hash % SHARDS as u128) as usize;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Removes expired ids, and the oldest beyond `most`.
    fn forget(&mut self, now: Instant, ttl: Duration, most: usize) {
        while let Some(&(hash, stored)) = self.order.front() {
            let is_old = now.saturating_duration_since(stored) >= ttl;
            if !is_old && self.order.len() <= most {
                return;
            }
            self.order.pop_front();
            // The id may have been stored again since.
            if self
                .workers
                .get(&hash)
                .is_some_and(|entry| entry.stored == stored)
            {
                self.workers.remove(&hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);
    const LIMITS: ResponseLimits = ResponseLimits { most: 64, ttl: TTL };

    fn key<'a>(client: &'a str, id: &'a str) -> ResponseKey<'a> {
        ResponseKey { client, id }
    }

    fn table() -> ResponseTable {
        ResponseTable::new(ResponseMetrics::default())
    }

    fn size(table: &ResponseTable) -> usize {
        table
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap().workers.len())
            .sum()
    }

    #[test]
    fn an_id_is_its_clients_alone() {
        let (table, now) = (table(), Instant::now());
        table.store(key("a", "resp_1"), WorkerId(7), LIMITS, now);
        assert_eq!(table.find(key("a", "resp_1"), LIMITS, now), Some(WorkerId(7)));
        for stranger in [
            key("b", "resp_1"),
            key("", "resp_1"),
            key("a", "resp_2"),
            key("aresp_", "1"),
        ] {
            assert_eq!(table.find(stranger, LIMITS, now), None);
        }
    }

    #[test]
    fn the_tokens_of_a_response_are_counted_once() {
        let (table, now) = (table(), Instant::now());
        let entry = table.store(key("a", "resp_1"), WorkerId(7), LIMITS, now);
        let again = table.entry(key("a", "resp_1"));
        assert_eq!(
            [entry, again].map(|entry| table.count_tokens(entry)),
            [true, false]
        );
        let unknown = table.entry(key("b", "resp_1"));
        assert!(!table.count_tokens(unknown));
    }

    #[test]
    fn an_id_expires() {
        let (table, now) = (table(), Instant::now());
        table.store(key("", "resp_1"), WorkerId(7), LIMITS, now);
        assert!(table.find(key("", "resp_1"), LIMITS, now + TTL / 2).is_some());
        assert!(table.find(key("", "resp_1"), LIMITS, now + TTL).is_none());
        // An id that is stored again gets a new lifetime.
        table.store(key("", "resp_1"), WorkerId(8), LIMITS, now + TTL);
        assert_eq!(
            table.find(key("", "resp_1"), LIMITS, now + TTL),
            Some(WorkerId(8))
        );
    }

    #[test]
    fn the_table_has_an_end_and_forgets_the_oldest_first() {
        let (table, now) = (table(), Instant::now());
        for number in 0..10_000 {
            table.store(key("", &number.to_string()), WorkerId(1), LIMITS, now);
        }
        assert!(size(&table) <= LIMITS.most, "{}", size(&table));
        assert!(table.find(key("", "9999"), LIMITS, now).is_some());
        assert!(table.find(key("", "0"), LIMITS, now).is_none());
        assert_eq!(table.metrics.size(), size(&table) as i64);
        let held: usize = table
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap().order.len())
            .sum();
        assert!(held <= LIMITS.most, "{held}");
    }

    #[test]
    fn a_table_whose_limits_shrink_forgets_what_is_beyond_them() {
        let (table, now) = (table(), Instant::now());
        table.store(key("", "resp_1"), WorkerId(7), LIMITS, now);
        let none = ResponseLimits { most: 0, ttl: TTL };
        assert_eq!(table.find(key("", "resp_1"), none, now), None);
        assert_eq!((size(&table), table.metrics.size()), (0, 0));
    }

    #[test]
    fn a_table_of_no_room_keeps_nothing() {
        let (table, now) = (table(), Instant::now());
        let none = ResponseLimits { most: 0, ttl: TTL };
        table.store(key("", "resp_1"), WorkerId(7), none, now);
        assert_eq!(
            (size(&table), table.find(key("", "resp_1"), LIMITS, now)),
            (0, None)
        );
    }
}
