//! Session table of a policy: an LRU map from sessions to workers with expiry, kept outside its instances like its
//! state.
//!
//! A lock is held for a lookup and a few pointers. The least recently used session is known over all shards, so the
//! limit is exact for the policy as a whole.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use routing::WorkerId;

/// Longest lifetime of a session, in milliseconds: a day.
const LONGEST_MS: u32 = 24 * 60 * 60 * 1000;
/// Number of shards; each has a lock.
const SHARDS: usize = 16;

/// Use counter at start: restored sessions are below it, those of this run above.
const RESTORED: u64 = 1 << 63;

type SessionShard = LruCache<u64, SessionPlace>;

/// Sessions of one policy. Times are on the clock of its decisions.
#[derive(Debug)]
pub struct Sessions {
    shards: [Mutex<SessionShard>; SHARDS],
    /// Number over all shards. It changes only under the lock of the changed shard, so it is never below 0.
    count: AtomicUsize,
    limit: AtomicUsize,
    /// Use counter, increasing from [`RESTORED`]: orders sessions by their last use.
    uses: AtomicU64,
    /// Counter of restored sessions, decreasing from there: each is older than all before.
    restored: AtomicU64,
    evicted: AtomicU64,
    changes: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct SessionPlace {
    worker: WorkerId,
    /// Microseconds.
    until: u64,
    /// Value of [`Sessions::uses`] at the last use.
    used: u64,
}

/// A session as saved over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionEntry {
    /// Hash of the session.
    pub session: u64,
    /// Worker.
    pub worker: WorkerId,
    /// Remaining lifetime.
    pub left: Duration,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(LruCache::unbounded())),
            count: AtomicUsize::new(0),
            limit: AtomicUsize::new(Self::DEFAULT_LIMIT),
            uses: AtomicU64::new(RESTORED),
            restored: AtomicU64::new(RESTORED),
            evicted: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }
}

impl Sessions {
    /// Default limit; [`Sessions::limit_to`] changes it.
    pub const DEFAULT_LIMIT: usize = 65_536;

    /// Returns the worker of a session, unless it has expired.
    #[must_use]
    pub fn recall(&self, session: u64, now_us: u64) -> Option<WorkerId> {
        let mut shard = self.shard(session);
        let place = shard.get_mut(&session)?;
        if place.until > now_us {
            place.used = self.uses.fetch_add(1, Ordering::Relaxed);
            return Some(place.worker);
        }
        shard.pop(&session);
        self.count.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Sets the worker of a session for at most a day. Over the limit, the least recently used session is evicted.
    pub fn remember(&self, session: u64, worker: WorkerId, ttl_ms: u32, now_us: u64) {
        let ttl_us = u64::from(ttl_ms.min(LONGEST_MS)) * 1000;
        let place = SessionPlace {
            worker,
            until: now_us.saturating_add(ttl_us),
            used: self.uses.fetch_add(1, Ordering::Relaxed),
        };
        let mut shard = self.shard(session);
        let before = shard.put(session, place);
        let is_same = before.is_some_and(|before| before.worker == worker && before.until == place.until);
        if !is_same {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        if before.is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
            drop(shard);
            self.keep_to_limit();
        }
    }

    /// Restores sessions of another run, the most recently used last. All of them count as older than this run's.
    /// Existing sessions stay, and none is evicted.
    pub fn restore(&self, entries: &[SessionEntry], now_us: u64) {
        for entry in entries.iter().rev() {
            let mut shard = self.shard(entry.session);
            if shard.contains(&entry.session) {
                continue;
            }
            let room = |count: usize| (count < self.limit()).then_some(count + 1);
            if self
                .count
                .try_update(Ordering::Relaxed, Ordering::Relaxed, room)
                .is_err()
            {
                return;
            }
            let left = entry.left.min(Duration::from_millis(LONGEST_MS.into()));
            let place = SessionPlace {
                worker: entry.worker,
                until: now_us.saturating_add(left.as_micros() as u64),
                used: self.restored.fetch_sub(1, Ordering::Relaxed) - 1,
            };
            shard.put(entry.session, place);
            shard.demote(&entry.session);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a session.
    pub fn forget(&self, session: u64) {
        let mut shard = self.shard(session);
        if shard.pop(&session).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of sessions, including expired ones that were not looked up since.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the number of evicted sessions.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Sets the limit.
    pub fn limit_to(&self, most: usize) {
        self.limit.store(most, Ordering::Relaxed);
        self.keep_to_limit();
    }

    /// Returns the number of changes, to detect an outdated copy.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the sessions that have not expired, the most recently used last.
    pub(crate) fn entries(&self, now_us: u64) -> Vec<SessionEntry> {
        let mut entries = Vec::with_capacity(self.count().min(self.limit()));
        for shard in &self.shards {
            let shard = lock(shard);
            let alive = shard.iter().filter(|(_, place)| place.until > now_us);
            entries.extend(alive.map(|(&session, &place)| (session, place)));
        }
        entries.sort_unstable_by_key(|(_, place)| place.used);
        let entry = |(session, place): (u64, SessionPlace)| SessionEntry {
            session,
            worker: place.worker,
            left: Duration::from_micros(place.until - now_us),
        };
        entries.into_iter().map(entry).collect()
    }

    fn keep_to_limit(&self) {
        while self.count() > self.limit() && self.evict() {}
    }

    /// Evicts the least recently used session if there are too many. Returns `true` if there may be more to evict.
    fn evict(&self) -> bool {
        let oldest = |shard: &Mutex<SessionShard>| lock(shard).peek_lru().map(|(_, place)| place.used);
        let shards = self.shards.iter();
        let oldest = shards.filter_map(|shard| Some((oldest(shard)?, shard)));
        let Some((_, shard)) = oldest.min_by_key(|(used, _)| *used) else {
            return false;
        };
        let mut shard = lock(shard);
        if shard.is_empty() {
            // The session to evict is gone already, and was counted there.
            return true;
        }
        let over = |count: usize| (count > self.limit()).then(|| count - 1);
        let is_over = self.count.try_update(Ordering::Relaxed, Ordering::Relaxed, over);
        if is_over.is_err() {
            return false;
        }
        shard.pop_lru();
        self.evicted.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    fn shard(&self, session: u64) -> MutexGuard<'_, SessionShard> {
        lock(&self.shards[(session ^ session >> 32) as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<SessionShard>) -> MutexGuard<'_, SessionShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u32 = 60_000;

    fn recalled(sessions: &Sessions, session: u64) -> Option<u32> {
        sessions.recall(session, 0).map(|worker| worker.0)
    }

    #[test]
    fn a_session_is_recalled_until_its_time_is_over_and_for_a_day_at_most() {
        let sessions = Sessions::default();
        sessions.remember(1, WorkerId(7), MINUTE, 5);
        assert_eq!(sessions.recall(1, 60_000_004), Some(WorkerId(7)));
        assert_eq!(sessions.recall(1, 60_000_005), None);
        assert_eq!(sessions.count(), 0);
        sessions.remember(1, WorkerId(7), u32::MAX, 0);
        assert_eq!(sessions.recall(1, 86_400_000_000), None);
        sessions.remember(1, WorkerId(7), 0, 0);
        assert_eq!(sessions.recall(1, 0), None);
    }

    #[test]
    fn a_session_moves_and_is_forgotten() {
        let sessions = Sessions::default();
        sessions.remember(1, WorkerId(7), MINUTE, 0);
        sessions.remember(1, WorkerId(8), MINUTE, 0);
        assert_eq!((recalled(&sessions, 1), sessions.count()), (Some(8), 1));
        sessions.forget(1);
        sessions.forget(1);
        assert_eq!((recalled(&sessions, 1), sessions.count()), (None, 0));
    }

    #[test]
    fn over_the_limit_the_one_that_was_not_used_for_longest_goes() {
        let sessions = Sessions::default();
        sessions.limit_to(100);
        for session in 0..100 {
            sessions.remember(session, WorkerId(1), MINUTE, 0);
        }
        assert_eq!(recalled(&sessions, 0), Some(1));
        sessions.remember(1, WorkerId(2), MINUTE, 0);
        for session in 100..198 {
            sessions.remember(session, WorkerId(1), MINUTE, 0);
        }
        assert_eq!((sessions.count(), sessions.evicted()), (100, 98));
        assert_eq!(
            (recalled(&sessions, 0), recalled(&sessions, 1)),
            (Some(1), Some(2))
        );
        assert!((2..100).all(|session| recalled(&sessions, session).is_none()));
        sessions.limit_to(1);
        assert_eq!((sessions.count(), recalled(&sessions, 1)), (1, Some(2)));
    }

    #[test]
    fn the_limit_holds_among_threads() {
        let sessions = Sessions::default();
        sessions.limit_to(50);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let sessions = &sessions;
                scope.spawn(move || {
                    for session in 0..1000 {
                        sessions.remember(thread * 1000 + session, WorkerId(1), MINUTE, 0);
                        sessions.forget(thread * 1000 + session / 2);
                    }
                });
            }
        });
        let kept: usize = sessions.shards.iter().map(|shard| lock(shard).len()).sum();
        assert_eq!(sessions.count(), kept);
        assert!(kept <= 50, "{kept}");
    }

    #[test]
    fn the_count_is_never_below_nothing() {
        let sessions = Sessions::default();
        sessions.limit_to(1);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let sessions = &sessions;
                scope.spawn(move || {
                    for session in 0..2000 {
                        sessions.remember(session, WorkerId(1), MINUTE, 0);
                        sessions.forget(session + thread % 2);
                        // Each thread may exceed the limit by one for a moment.
                        assert!(sessions.count() <= 5, "{}", sessions.count());
                    }
                });
            }
        });
    }

    #[test]
    fn sessions_of_another_run_give_way_to_those_of_this_one() {
        let sessions = Sessions::default();
        let entry = |session| SessionEntry {
            session,
            worker: WorkerId(9),
            left: Duration::from_mins(1),
        };
        sessions.limit_to(4);
        sessions.remember(2, WorkerId(7), MINUTE, 0);
        sessions.remember(1, WorkerId(7), MINUTE, 0);
        sessions.restore(&[entry(5), entry(4), entry(1), entry(3)], 0);
        let order = |sessions: &Sessions| -> Vec<_> {
            let entries = sessions.entries(0).into_iter();
            entries.map(|entry| (entry.session, entry.worker.0)).collect()
        };
        assert_eq!(
            order(&sessions),
            [(4, 9), (3, 9), (2, 7), (1, 7)],
            "no room for the oldest"
        );
        assert_eq!(sessions.evicted(), 0);
        sessions.remember(6, WorkerId(7), MINUTE, 0);
        assert_eq!(order(&sessions), [(3, 9), (2, 7), (1, 7), (6, 7)]);
        assert_eq!(recalled(&sessions, 3), Some(9));
        assert_eq!(sessions.recall(3, 60_000_000), None, "its time is over");
    }

    #[test]
    fn sessions_kept_over_a_restart_are_alive_and_in_the_order_of_use() {
        let sessions = Sessions::default();
        sessions.remember(1, WorkerId(7), MINUTE, 0);
        sessions.remember(2, WorkerId(8), 1, 0);
        sessions.remember(3, WorkerId(9), MINUTE, 0);
        assert_eq!(recalled(&sessions, 1), Some(7));
        let entry = |session, worker| SessionEntry {
            session,
            worker: WorkerId(worker),
            left: Duration::from_secs(59),
        };
        assert_eq!(sessions.entries(1_000_000), [entry(3, 9), entry(1, 7)]);
    }
}
