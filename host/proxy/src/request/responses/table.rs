//! Table of response ids: which worker made which response. The table is bounded, expiring, and sharded, so that
//! answers which end at the same time do not wait for each other.
//!
//! Ids are chosen by engines, and clients may request any id. The table therefore keeps hashes of ids under a secret of
//! this process, so that no client can fill one shard on purpose. Each id belongs to the client of its request, and
//! another client can neither find nor replace it.

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
    /// Name of the client. `None` where clients need no key.
    pub(crate) client: Option<&'a str>,
    pub(crate) id: &'a str,
}

/// Place of a response in the table: the hash of its id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseEntry(u128);

/// Result of a search for an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseOrigin {
    /// This worker made the client's response.
    Worker(WorkerId),
    /// The id is unknown, or has expired.
    Unknown,
    /// The response was made for another client.
    OtherClient,
}

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
    /// Hash of its client's name. `None` for a response that was made without a key.
    client: Option<u64>,
    stored: Instant,
    /// `true` until the response's own answer has ended. Until then it alone counts the tokens.
    is_open: bool,
    /// `true` once an answer has stated the usage. Estimates count no more then.
    is_stated: bool,
    /// Output tokens of the response that are counted, without the estimate for an answer that has no usage. While the
    /// response's own answer is open, some are known by answers by its id, and that answer counts them at its end.
    counted_tokens: u64,
}

/// Output tokens of a response, as an answer by its id has them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OutputTokens {
    /// Usage of the whole response.
    Stated(u64),
    /// Estimate for an answer without usage.
    Estimated(u64),
}

impl ResponseTable {
    pub(crate) fn new(metrics: ResponseMetrics) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            secrets: [RandomState::new(), RandomState::new()],
            metrics,
        }
    }

    /// Records that a worker made a response. Returns `None` if the id is known as that of another client's response,
    /// which it remains.
    pub(crate) fn store(
        &self,
        key: ResponseKey<'_>,
        worker: WorkerId,
        limits: ResponseLimits,
        now: Instant,
    ) -> Option<ResponseEntry> {
        let most = limits.most.div_ceil(SHARDS);
        let hash = self.hash(key.id);
        let client = self.client(key);
        let mut shard = self.shard(hash);
        let before = shard.workers.len();
        shard.forget(now, limits.ttl, most);
        let stored = shard.workers.get(&hash);
        let is_taken = stored.is_some_and(|stored| stored.is_of_other(client));
        if most > 0 && !is_taken {
            shard.forget(now, limits.ttl, most - 1);
            let entry = StoredResponse {
                worker,
                client,
                stored: now,
                is_open: true,
                is_stated: false,
                counted_tokens: 0,
            };
            shard.workers.insert(hash, entry);
            shard.order.push_back((hash, now));
        }
        let after = shard.workers.len();
        drop(shard);
        self.metrics.size_changed(before, after);
        (!is_taken).then_some(ResponseEntry(hash))
    }

    /// Returns the place of a response, known or not.
    pub(crate) fn entry(&self, id: &str) -> ResponseEntry {
        ResponseEntry(self.hash(id))
    }

    /// Records that the response's own answer counts so many output tokens.
    pub(crate) fn count_own(&self, entry: ResponseEntry, so_far: u64) {
        if let Some(stored) = self.shard(entry.0).workers.get_mut(&entry.0) {
            stored.counted_tokens = stored.counted_tokens.max(so_far);
        }
    }

    /// Records the end of the response's own answer. Returns the output tokens that it must count: answers by the id
    /// may have had more of them. `None` if it states its usage, or the response is unknown.
    pub(crate) fn close(&self, entry: ResponseEntry, is_stated: bool) -> Option<u64> {
        let mut shard = self.shard(entry.0);
        let stored = shard.workers.get_mut(&entry.0)?;
        stored.is_open = false;
        stored.is_stated |= is_stated;
        (!is_stated).then_some(stored.counted_tokens)
    }

    /// Records the output tokens of an answer by the response's id. Returns the number that was counted before;
    /// `None` if this answer counts none, because the response is unknown or its own answer is still open.
    pub(crate) fn count_by_id(&self, entry: ResponseEntry, tokens: OutputTokens) -> Option<u64> {
        let mut shard = self.shard(entry.0);
        let stored = shard.workers.get_mut(&entry.0)?;
        let before = stored.counted_tokens;
        match tokens {
            OutputTokens::Stated(tokens) => {
                stored.is_stated = true;
                stored.counted_tokens = before.max(tokens);
            }
            OutputTokens::Estimated(tokens) if !stored.is_stated => {
                stored.counted_tokens = before.max(tokens)
            }
            OutputTokens::Estimated(_) => return None,
        }
        (!stored.is_open).then_some(before)
    }

    /// Finds the worker that made a response. Removes what the limits no longer allow.
    pub(crate) fn find(&self, key: ResponseKey<'_>, limits: ResponseLimits, now: Instant) -> ResponseOrigin {
        let hash = self.hash(key.id);
        let mut shard = self.shard(hash);
        let before = shard.workers.len();
        shard.forget(now, limits.ttl, limits.most.div_ceil(SHARDS));
        let (after, found) = (shard.workers.len(), shard.workers.get(&hash).copied());
        drop(shard);
        self.metrics.size_changed(before, after);
        let is_known = |entry: &StoredResponse| now.saturating_duration_since(entry.stored) < limits.ttl;
        let client = self.client(key);
        match found.filter(is_known) {
            Some(entry) if entry.client == client => ResponseOrigin::Worker(entry.worker),
            Some(entry) if entry.is_of_other(client) => ResponseOrigin::OtherClient,
            _ => ResponseOrigin::Unknown,
        }
    }

    fn hash(&self, id: &str) -> u128 {
        let half = |secret: &RandomState| u128::from(secret.hash_one(id));
        half(&self.secrets[0]) << 64 | half(&self.secrets[1])
    }

    /// Returns the hash of the client's name. `None` where clients need no key.
    fn client(&self, key: ResponseKey<'_>) -> Option<u64> {
        key.client.map(|client| self.secrets[0].hash_one(client))
    }

    fn shard(&self, hash: u128) -> MutexGuard<'_, Shard> {
        let at = (hash % SHARDS as u128) as usize;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredResponse {
    /// Returns `true` if the response was made for a client with a key that is not this one.
    fn is_of_other(&self, client: Option<u64>) -> bool {
        self.client.is_some() && self.client != client
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

    /// Returns the key of a client's response. An empty name stands for no client.
    fn key<'a>(client: &'a str, id: &'a str) -> ResponseKey<'a> {
        let client = (!client.is_empty()).then_some(client);
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
        let found = |client: &str, id: &str| table.find(key(client, id), LIMITS, now);
        let own = ResponseOrigin::Worker(WorkerId(7));
        assert_eq!(found("a", "resp_1"), own);
        assert_eq!(found("a", "resp_2"), ResponseOrigin::Unknown);
        for stranger in ["b", ""] {
            assert_eq!(found(stranger, "resp_1"), ResponseOrigin::OtherClient);
            let claimed = table.store(key(stranger, "resp_1"), WorkerId(8), LIMITS, now);
            assert!(claimed.is_none());
            assert_eq!(found("a", "resp_1"), own);
        }
    }

    #[test]
    fn an_id_of_the_time_before_keys_is_unknown_to_clients() {
        let (table, now) = (table(), Instant::now());
        table.store(key("", "resp_1"), WorkerId(7), LIMITS, now);
        let found = table.find(key("a", "resp_1"), LIMITS, now);
        assert_eq!(found, ResponseOrigin::Unknown);
    }

    #[test]
    fn a_rejected_claim_of_an_id_evicts_nothing() {
        let (table, now) = (table(), Instant::now());
        let one_per_shard = ResponseLimits {
            most: SHARDS,
            ttl: TTL,
        };
        table.store(key("a", "resp_1"), WorkerId(7), one_per_shard, now);
        let claimed = table.store(key("b", "resp_1"), WorkerId(8), one_per_shard, now);
        assert!(claimed.is_none());
        let found = table.find(key("a", "resp_1"), one_per_shard, now);
        assert_eq!(found, ResponseOrigin::Worker(WorkerId(7)));
    }

    #[test]
    fn each_token_of_a_response_is_counted_once() {
        let (table, now) = (table(), Instant::now());
        let entry = table.store(key("a", "resp_1"), WorkerId(7), LIMITS, now).unwrap();
        table.count_own(entry, 3);
        assert_eq!(table.close(entry, false), Some(3));
        let again = table.entry("resp_1");
        let by_id = |tokens| table.count_by_id(again, tokens);
        assert_eq!(by_id(OutputTokens::Estimated(5)), Some(3));
        let before = [50, 50, 40, 60].map(|so_far| by_id(OutputTokens::Stated(so_far)));
        assert_eq!(before, [Some(5), Some(50), Some(50), Some(50)]);
        assert_eq!(by_id(OutputTokens::Estimated(70)), None);
        let unknown = table.entry("resp_2");
        assert_eq!(table.count_by_id(unknown, OutputTokens::Stated(50)), None);
    }

    #[test]
    fn the_own_answer_of_a_response_counts_what_answers_by_its_id_had_meanwhile() {
        let (table, now) = (table(), Instant::now());
        let entry = table.store(key("a", "resp_1"), WorkerId(7), LIMITS, now).unwrap();
        assert_eq!(table.count_by_id(entry, OutputTokens::Stated(50)), None);
        table.count_own(entry, 3);
        assert_eq!(table.close(entry, false), Some(50));
        assert_eq!(table.count_by_id(entry, OutputTokens::Stated(50)), Some(50));
        assert_eq!(table.close(entry, true), None, "its usage counts");
    }

    #[test]
    fn an_evicted_response_counts_nothing_by_its_id() {
        let (table, now) = (table(), Instant::now());
        let entry = table.store(key("a", "resp_1"), WorkerId(7), LIMITS, now).unwrap();
        table.count_own(entry, 3);
        // More than the table holds, so that each shard has others.
        for number in 0..10_000 {
            table.store(key("b", &number.to_string()), WorkerId(8), LIMITS, now);
        }
        table.count_own(entry, 4);
        assert_eq!(table.close(entry, false), None);
        let again = table.entry("resp_1");
        assert_eq!(table.count_by_id(again, OutputTokens::Stated(50)), None);
        let stored = table.store(key("b", "resp_1"), WorkerId(8), LIMITS, now).unwrap();
        assert_eq!(
            table.close(stored, false),
            Some(0),
            "it is a new one, of any client"
        );
    }

    #[test]
    fn an_id_expires() {
        let (table, now) = (table(), Instant::now());
        let found = |now| table.find(key("", "resp_1"), LIMITS, now);
        table.store(key("", "resp_1"), WorkerId(7), LIMITS, now);
        assert_eq!(found(now + TTL / 2), ResponseOrigin::Worker(WorkerId(7)));
        assert_eq!(found(now + TTL), ResponseOrigin::Unknown);
        // An id that is stored again gets a new lifetime.
        table.store(key("", "resp_1"), WorkerId(8), LIMITS, now + TTL);
        assert_eq!(found(now + TTL), ResponseOrigin::Worker(WorkerId(8)));
    }

    #[test]
    fn the_table_has_an_end_and_forgets_the_oldest_first() {
        let (table, now) = (table(), Instant::now());
        for number in 0..10_000 {
            table.store(key("", &number.to_string()), WorkerId(1), LIMITS, now);
        }
        assert!(size(&table) <= LIMITS.most, "{}", size(&table));
        let found = |id: &str| table.find(key("", id), LIMITS, now);
        assert_eq!(found("9999"), ResponseOrigin::Worker(WorkerId(1)));
        assert_eq!(found("0"), ResponseOrigin::Unknown);
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
        assert_eq!(table.find(key("", "resp_1"), none, now), ResponseOrigin::Unknown);
        assert_eq!((size(&table), table.metrics.size()), (0, 0));
    }

    #[test]
    fn a_table_of_no_room_keeps_nothing() {
        let (table, now) = (table(), Instant::now());
        let none = ResponseLimits { most: 0, ttl: TTL };
        table.store(key("", "resp_1"), WorkerId(7), none, now);
        assert_eq!(
            (size(&table), table.find(key("", "resp_1"), LIMITS, now)),
            (0, ResponseOrigin::Unknown)
        );
    }
}
