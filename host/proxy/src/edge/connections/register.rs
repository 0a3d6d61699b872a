//! Who is connected, from which address, and since when nothing is asked.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Between two requests of a busy client there may be so much time; no such connection is closed.
pub(super) const IDLE_FOR: Duration = Duration::from_secs(1);
/// A connection in the lobby has so much time for its first request.
pub(super) const SILENT_FOR: Duration = Duration::from_millis(100);
/// Bits of an IPv6 address that one client cannot choose.
const PREFIX: u32 = 64;

/// Every connection.
#[derive(Debug)]
pub(super) struct Register {
    epoch: Instant,
    numbers: AtomicU64,
    connected: Mutex<Connected>,
}

#[derive(Debug, Default)]
struct Connected {
    /// By their numbers: the first one came first.
    standings: BTreeMap<u64, Arc<ConnectionState>>,
    by_address: HashMap<IpAddr, usize>,
}

/// One connection, as those that wait see it.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) epoch: Instant,
    number: u64,
    address: Option<IpAddr>,
    /// Milliseconds from the epoch, counted from 1.
    came: u64,
    /// The same, since which nothing is asked on it; 0 while something is.
    pub(super) idle_since: AtomicU64,
    /// The same, when what is asked must be answered to its end; 0: whenever it is.
    pub(super) ends: AtomicU64,
    /// Whether it is out of the lobby.
    pub(super) is_seated: AtomicBool,
    /// Whether it ends for another one.
    pub(super) is_displaced: AtomicBool,
    pub(super) stop: CancellationToken,
}

impl Default for Register {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            numbers: AtomicU64::new(0),
            connected: Mutex::default(),
        }
    }
}

impl Register {
    pub(super) fn enter(
        &self,
        peer: Option<IpAddr>,
        is_seated: bool,
        stop: &CancellationToken,
    ) -> Arc<ConnectionState> {
        let now = since(self.epoch, Instant::now());
        let standing = Arc::new(ConnectionState {
            epoch: self.epoch,
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            address: peer.map(counted),
            came: now,
            idle_since: AtomicU64::new(now),
            ends: AtomicU64::new(0),
            is_seated: AtomicBool::new(is_seated),
            is_displaced: AtomicBool::new(false),
            stop: stop.child_token(),
        });
        let mut connected = self.lock();
        if let Some(address) = standing.address {
            *connected.by_address.entry(address).or_default() += 1;
        }
        connected.standings.insert(standing.number, Arc::clone(&standing));
        standing
    }

    pub(super) fn leave(&self, standing: &ConnectionState) {
        let mut connected = self.lock();
        connected.standings.remove(&standing.number);
        if let Some(address) = standing.address {
            connected.remove(address);
        }
    }

    /// Counts one more of an address that has no connection of its own, unless there are `limit`.
    pub(super) fn add(&self, client: IpAddr, limit: Option<usize>) -> bool {
        let mut connected = self.lock();
        let count = connected.by_address.entry(counted(client)).or_default();
        let may = limit.is_none_or(|limit| *count < limit);
        *count += usize::from(may);
        may
    }

    /// One of those is over.
    pub(super) fn remove(&self, client: IpAddr) {
        self.lock().remove(counted(client));
    }

    /// Connections of the peer's address.
    pub(super) fn count(&self, peer: Option<IpAddr>) -> usize {
        let connected = self.lock();
        let count = peer.and_then(|peer| connected.by_address.get(&counted(peer)));
        count.copied().unwrap_or(0)
    }

    /// Returns the connection on a seat that was idle for longest, and long enough, and was not closed for another yet; among
    /// equals, the one that came first.
    pub(super) fn longest_idle(&self, now: Instant) -> Option<Arc<ConnectionState>> {
        self.longest(now, IDLE_FOR, |standing| {
            standing.is_seated.load(Ordering::Relaxed)
        })
    }

    /// The same of one address, in the lobby too.
    pub(super) fn longest_idle_of(&self, peer: Option<IpAddr>, now: Instant) -> Option<Arc<ConnectionState>> {
        let address = peer.map(counted);
        self.longest(now, IDLE_FOR, |standing| standing.address == address)
    }

    /// Returns the connection in the lobby that says nothing for longest; without any, the one that waits for a seat for
    /// longest.
    pub(super) fn longest_in_lobby(&self, now: Instant) -> Option<Arc<ConnectionState>> {
        let is_here = |standing: &ConnectionState| !standing.is_seated.load(Ordering::Relaxed);
        let silent = self.longest(now, SILENT_FOR, is_here);
        silent.or_else(|| {
            let now = since(self.epoch, now);
            let connected = self.lock();
            let mut waiting = connected.standings.values().filter(|standing| {
                let has_waited = now.saturating_sub(standing.came) >= millis(IDLE_FOR);
                is_here(standing) && has_waited && !standing.stop.is_cancelled()
            });
            waiting.next().map(Arc::clone)
        })
    }

    /// Returns every connection that is idle, and long enough, and was not closed for another yet.
    pub(super) fn all_idle(&self, now: Instant) -> Vec<Arc<ConnectionState>> {
        let now = since(self.epoch, now);
        let connected = self.lock();
        let is_idle = |standing: &&Arc<ConnectionState>| standing.idle_for(now) >= Some(millis(IDLE_FOR));
        connected
            .standings
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
        let idle = connected.standings.values().filter_map(|standing| {
            let since = standing.idle_since.load(Ordering::Relaxed);
            let is_idle = since > 0 && now.saturating_sub(since) >= least;
            (is_idle && may_end(standing) && !standing.stop.is_cancelled()).then_some((since, standing))
        });
        // The first of equals.
        idle.min_by_key(|(since, _)| *since)
            .map(|(_, standing)| Arc::clone(standing))
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
    /// Milliseconds since which nothing is asked on it; none while something is, and once it is closed for another.
    fn idle_for(&self, now: u64) -> Option<u64> {
        let since = self.idle_since.load(Ordering::Relaxed);
        (since > 0 && !self.stop.is_cancelled()).then(|| now.saturating_sub(since))
    }

    /// Has it end for another one.
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

/// What connections are counted by: an IPv4 address, or the network of an IPv6 one, whose other half its owner chooses.
pub(crate) fn counted(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> (u128::BITS - PREFIX) << (u128::BITS - PREFIX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Milliseconds, counted from 1.
pub(super) fn since(epoch: Instant, now: Instant) -> u64 {
    millis(now.duration_since(epoch)).saturating_add(1)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl Register {
    pub(super) fn epoch(&self) -> Instant {
        self.epoch
    }

    pub(super) fn len(&self) -> usize {
        self.lock().standings.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_client_is_counted_by_its_network() {
        let is_one = |a: &str, b: &str| counted(a.parse().unwrap()) == counted(b.parse().unwrap());
        assert!(is_one("2001:db8::1", "2001:db8::ffff:0:0:1"));
        assert!(!is_one("2001:db8::1", "2001:db8:0:1::1"));
        assert!(is_one("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!is_one("10.0.0.1", "10.0.0.2"));
    }
}
