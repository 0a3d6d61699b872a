//! Register of connections: address, idle time and slot of each.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::base::address::address_key;

/// Idle timeout before a connection may be closed for another. A busy client may pause this long between two requests.
pub(super) const IDLE_FOR: Duration = Duration::from_secs(1);
/// Time that a connection in the overflow area has for its first request.
pub(super) const SILENT_FOR: Duration = Duration::from_millis(100);

/// Register of all connections.
#[derive(Debug)]
pub(super) struct Register {
    epoch: Instant,
    numbers: AtomicU64,
    /// Time of the last search for an idle connection that found none, in milliseconds from the epoch, counted from 1.
    last_miss: AtomicU64,
    connected: Mutex<Connected>,
}

#[derive(Debug, Default)]
struct Connected {
    /// Connections by number, in order of arrival.
    states: BTreeMap<u64, Arc<ConnectionState>>,
    by_address: HashMap<IpAddr, usize>,
}

/// Connection state that waiting connections see.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) epoch: Instant,
    number: u64,
    address: Option<IpAddr>,
    /// Time of arrival in milliseconds from the epoch, counted from 1.
    came: u64,
    /// Start of the idle time in the same unit; 0 while a request is in progress.
    pub(super) idle_since: AtomicU64,
    /// Deadline of the current response in the same unit; 0 without one.
    pub(super) ends: AtomicU64,
    /// `true` once the connection has a slot.
    pub(super) has_slot: AtomicBool,
    /// `true` once the connection is closed for another one.
    pub(super) is_displaced: AtomicBool,
    pub(super) stop: CancellationToken,
}

impl Default for Register {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            numbers: AtomicU64::new(0),
            last_miss: AtomicU64::new(0),
            connected: Mutex::default(),
        }
    }
}

impl Register {
    pub(super) fn enter(
        &self,
        peer: Option<IpAddr>,
        has_slot: bool,
        stop: &CancellationToken,
    ) -> Arc<ConnectionState> {
        let now = since(self.epoch, Instant::now());
        let state = Arc::new(ConnectionState {
            epoch: self.epoch,
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            address: peer.map(address_key),
            came: now,
            idle_since: AtomicU64::new(now),
            ends: AtomicU64::new(0),
            has_slot: AtomicBool::new(has_slot),
            is_displaced: AtomicBool::new(false),
            stop: stop.child_token(),
        });
        let mut connected = self.lock();
        if let Some(address) = state.address {
            *connected.by_address.entry(address).or_default() += 1;
        }
        connected.states.insert(state.number, Arc::clone(&state));
        state
    }

    pub(super) fn leave(&self, state: &ConnectionState) {
        let mut connected = self.lock();
        connected.states.remove(&state.number);
        if let Some(address) = state.address {
            connected.remove(address);
        }
    }

    /// Counts one more request of a forwarded address. Returns `false` if `limit` is reached.
    pub(super) fn add(&self, client: IpAddr, limit: Option<usize>) -> bool {
        let mut connected = self.lock();
        let count = connected.by_address.entry(address_key(client)).or_default();
        let may = limit.is_none_or(|limit| *count < limit);
        *count += usize::from(may);
        may
    }

    /// Removes one request of a forwarded address.
    pub(super) fn remove(&self, client: IpAddr) {
        self.lock().remove(address_key(client));
    }

    /// Returns the number of connections of the peer's address.
    pub(super) fn count(&self, peer: Option<IpAddr>) -> usize {
        let connected = self.lock();
        let count = peer.and_then(|peer| connected.by_address.get(&address_key(peer)));
        count.copied().unwrap_or(0)
    }

    /// Returns the connection with a slot that has been idle for longest, and for at least [`IDLE_FOR`]. Displaced
    /// connections are skipped. Among equals, the first to arrive is returned.
    pub(super) fn longest_idle(&self, now: Instant) -> Option<Arc<ConnectionState>> {
        self.longest(now, IDLE_FOR, |state| state.has_slot.load(Ordering::Relaxed))
    }

    /// Returns the longest idle connection with a slot. For `pause` after a search without success, nothing is
    /// searched: each of many waiting requests would visit all connections.
    pub(super) fn seek_idle(&self, now: Instant, pause: Duration) -> Option<Arc<ConnectionState>> {
        let at = since(self.epoch, now);
        let last = self.last_miss.load(Ordering::Relaxed);
        if last > 0 && at.saturating_sub(last) < millis(pause) {
            return None;
        }
        let idle = self.longest_idle(now);
        if idle.is_none() {
            self.last_miss.store(at, Ordering::Relaxed);
        }
        idle
    }

    /// Returns the longest idle connection of one address, the overflow area included.
    pub(super) fn longest_idle_of(&self, peer: Option<IpAddr>, now: Instant) -> Option<Arc<ConnectionState>> {
        let address = peer.map(address_key);
        self.longest(now, IDLE_FOR, |state| state.address == address)
    }

    /// Returns the connection in the overflow area that has been silent for longest. If there is none, returns the one
    /// that has waited for a slot for longest.
    pub(super) fn oldest_in_overflow(&self, now: Instant) -> Option<Arc<ConnectionState>> {
        let is_here = |state: &ConnectionState| !state.has_slot.load(Ordering::Relaxed);
        let silent = self.longest(now, SILENT_FOR, is_here);
        silent.or_else(|| {
            let now = since(self.epoch, now);
            let connected = self.lock();
            let mut waiting = connected.states.values().filter(|state| {
                let has_waited = now.saturating_sub(state.came) >= millis(IDLE_FOR);
                is_here(state) && has_waited && !state.stop.is_cancelled()
            });
            waiting.next().map(Arc::clone)
        })
    }

    /// Returns every connection that has been idle for at least [`IDLE_FOR`] and is not displaced.
    pub(super) fn all_idle(&self, now: Instant) -> Vec<Arc<ConnectionState>> {
        let now = since(self.epoch, now);
        let connected = self.lock();
        let is_idle = |state: &&Arc<ConnectionState>| state.idle_for(now) >= Some(millis(IDLE_FOR));
        connected
            .states
            .values()
            .filter(is_idle)
            .map(Arc::clone)
            .collect()
    }

    fn longest(
        &self,
        now: Instant,
        least: Duration,
        may_end: impl Fn(&ConnectionState) -> bool,
    ) -> Option<Arc<ConnectionState>> {
        let (now, least) = (since(self.epoch, now), millis(least));
        let connected = self.lock();
        let idle = connected.states.values().filter_map(|state| {
            let since = state.idle_since.load(Ordering::Relaxed);
            let is_idle = since > 0 && now.saturating_sub(since) >= least;
            (is_idle && may_end(state) && !state.stop.is_cancelled()).then_some((since, state))
        });
        // Returns the first of equals.
        idle.min_by_key(|(since, _)| *since)
            .map(|(_, state)| Arc::clone(state))
    }

    fn lock(&self) -> MutexGuard<'_, Connected> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connected {
    fn remove(&mut self, address: IpAddr) {
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

impl ConnectionState {
    /// Returns the milliseconds of idle time. `None` while a request is in progress, or if the connection is displaced.
    fn idle_for(&self, now: u64) -> Option<u64> {
        let since = self.idle_since.load(Ordering::Relaxed);
        (since > 0 && !self.stop.is_cancelled()).then(|| now.saturating_sub(since))
    }

    /// Closes the connection in favour of another one.
    pub(super) fn displace(&self) {
        self.is_displaced.store(true, Ordering::Relaxed);
        self.stop.cancel();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.idle_since.load(Ordering::Relaxed) > 0
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let after = self.ends.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.epoch + Duration::from_millis(after))
    }
}

/// Returns milliseconds since the epoch, counted from 1.
pub(super) fn since(epoch: Instant, now: Instant) -> u64 {
    millis(now.duration_since(epoch)).saturating_add(1)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl Register {
    /// Makes a register with an epoch.
    pub(super) fn since(epoch: Instant) -> Self {
        Self {
            epoch,
            ..Self::default()
        }
    }

    pub(super) fn epoch(&self) -> Instant {
        self.epoch
    }

    pub(super) fn len(&self) -> usize {
        self.lock().states.len()
    }
}
