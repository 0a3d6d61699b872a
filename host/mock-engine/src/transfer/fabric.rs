//! Fabric: the network between mock engines of one process, with the engines on it, their ready blocks, and the shared
//! store. It moves no bytes and takes no time: the sides do the waiting.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};
use xxhash_rust::xxh3::xxh3_128;

/// Most remembered transfers that the decode side gave up before the prefill side had finished.
const MAX_RENOUNCED: usize = 1024;
/// Most blocks in the shared store; the oldest are dropped first.
const STORE_BLOCKS: usize = 1 << 18;

/// Connects prefill and decode engines. Cheap to clone; clones are the same network.
#[derive(Debug, Clone, Default)]
pub struct Fabric {
    network: Arc<Network>,
}

impl PartialEq for Fabric {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.network, &other.network)
    }
}

#[derive(Debug, Default)]
struct Network {
    state: Mutex<State>,
    /// Counts offers, joins and leaves.
    changes: watch::Sender<u64>,
    /// Counts calls of `expire`.
    expiries: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    engines: HashMap<String, Presence>,
    /// Offers, as many as there are kept blocks.
    offers: HashMap<Key, Offer>,
    renounced: VecDeque<Key>,
    stored: HashSet<u64>,
    stored_order: VecDeque<u64>,
    /// Number of engines that ever joined, for their ids.
    joined: u64,
}

#[derive(Debug)]
struct Presence {
    port: u16,
    reachable: bool,
}

/// Key of a transfer: the engine with the blocks, and its name for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) engine: String,
    pub(crate) request: String,
}

/// Blocks that are ready to be fetched.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Cached prompt tokens of the prefill.
    pub(crate) cached_tokens: u32,
    /// Earliest time of fetching.
    pub(crate) ready_at: Instant,
    /// Notified when they were fetched; closed when their engine is gone.
    pub(crate) fetched: oneshot::Sender<()>,
}

/// End of the time for which one side keeps blocks or waits for the other.
#[derive(Debug)]
pub(crate) struct Expiry {
    at: Instant,
    /// Number of calls of `expire` before.
    before: u64,
    expiries: watch::Receiver<u64>,
}

impl Expiry {
    /// Waits for the end of the time. Returns at once if it has passed.
    pub(crate) async fn passed(&mut self) {
        let before = self.before;
        tokio::select! {
            () = sleep_until(self.at) => {}
            Ok(_) = self.expiries.wait_for(|count| *count != before) => {}
        }
    }
}

impl Fabric {
    /// Creates a network without engines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all current waits, for blocks to be fetched or offered, as their timeouts would.
    pub fn expire(&self) {
        self.network.expiries.send_modify(|count| *count += 1);
    }

    /// Returns the end of a wait of so long, which begins now.
    pub(crate) fn expiry(&self, after: Duration) -> Expiry {
        let expiries = self.network.expiries.subscribe();
        let before = *expiries.borrow();
        Expiry {
            at: Instant::now() + after,
            before,
            expiries,
        }
    }

    /// Returns a new engine id, shaped like a UUID.
    pub(crate) fn new_engine_id(&self) -> String {
        let mut state = self.lock();
        state.joined += 1;
        let hex = format!("{:032x}", xxh3_128(&state.joined.to_le_bytes()));
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        format!("{a}-{b}-{c}-{d}-{e}")
    }

    pub(crate) fn join(&self, engine: String, port: u16, reachable: bool) {
        self.lock().engines.insert(engine, Presence { port, reachable });
        self.changed();
    }

    /// Removes an engine and its offers.
    pub(crate) fn leave(&self, engine: &str) {
        let mut state = self.lock();
        state.engines.remove(engine);
        state.offers.retain(|key, _| key.engine != engine);
        drop(state);
        self.changed();
    }

    /// Returns `true` if an engine is on the network and has the port, if given.
    pub(crate) fn reaches(&self, engine: &str, port: Option<u16>) -> bool {
        let state = self.lock();
        let presence = state.engines.get(engine);
        presence.is_some_and(|it| it.reachable && port.is_none_or(|port| it.port == port))
    }

    /// Offers blocks. They count as fetched if the decode side has given them up.
    pub(crate) fn offer(&self, key: Key, offer: Offer) {
        let mut state = self.lock();
        if let Some(at) = state.renounced.iter().position(|given_up| *given_up == key) {
            state.renounced.remove(at);
            // The holder of the blocks may be gone already.
            let _ = offer.fetched.send(());
            return;
        }
        state.offers.insert(key, offer);
        drop(state);
        self.changed();
    }

    /// Withdraws an offer; returns `false` if it was taken.
    pub(crate) fn withdraw(&self, key: &Key) -> bool {
        self.lock().offers.remove(key).is_some()
    }

    /// Takes an offer, if there is one.
    pub(crate) fn take(&self, key: &Key) -> Option<Offer> {
        let mut state = self.lock();
        state.engines.get(&key.engine).filter(|engine| engine.reachable)?;
        state.offers.remove(key)
    }

    /// Waits for an offer and takes it.
    pub(crate) async fn taken(&self, key: &Key) -> Offer {
        let mut changes = self.network.changes.subscribe();
        loop {
            if let Some(offer) = self.take(key) {
                return offer;
            }
            // The sender belongs to this fabric.
            let _ = changes.changed().await;
        }
    }

    /// Gives up a transfer, ready or not.
    pub(crate) fn renounce(&self, key: Key) {
        let mut state = self.lock();
        if let Some(offer) = state.offers.remove(&key) {
            let _ = offer.fetched.send(());
            return;
        }
        if state.renounced.len() == MAX_RENOUNCED {
            state.renounced.pop_front();
        }
        state.renounced.push_back(key);
    }

    /// Puts blocks into the shared store.
    pub(crate) fn store(&self, hashes: &[u64]) {
        let mut state = self.lock();
        for &hash in hashes {
            if state.stored.insert(hash) {
                state.stored_order.push_back(hash);
            }
        }
        while state.stored_order.len() > STORE_BLOCKS {
            if let Some(oldest) = state.stored_order.pop_front() {
                state.stored.remove(&oldest);
            }
        }
    }

    /// Returns the number of leading blocks in the store.
    pub(crate) fn stored(&self, hashes: &[u64]) -> usize {
        let state = self.lock();
        hashes
            .iter()
            .take_while(|hash| state.stored.contains(hash))
            .count()
    }

    fn changed(&self) {
        self.network.changes.send_modify(|changes| *changes += 1);
    }

    /// Locks the state. Its entries are always complete, so they are valid even after a panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.network.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn key() -> Key {
        Key {
            engine: "e".to_owned(),
            request: "r".to_owned(),
        }
    }

    fn offer() -> (Offer, oneshot::Receiver<()>) {
        let (fetched, wait) = oneshot::channel();
        let offer = Offer {
            cached_tokens: 0,
            ready_at: Instant::now(),
            fetched,
        };
        (offer, wait)
    }

    #[test]
    fn an_offer_is_taken_once_and_only_from_an_engine_that_is_there() {
        let fabric = Fabric::new();
        fabric.offer(key(), offer().0);
        assert!(fabric.take(&key()).is_none());
        fabric.join("e".to_owned(), 7, true);
        assert!(fabric.reaches("e", Some(7)) && !fabric.reaches("e", Some(8)));
        assert!(fabric.take(&key()).is_some());
        assert!(fabric.take(&key()).is_none());
    }

    #[test]
    fn a_renounced_transfer_counts_as_fetched() {
        let fabric = Fabric::new();
        for ready_first in [true, false] {
            let (offer, mut fetched) = offer();
            if ready_first {
                fabric.offer(key(), offer);
                fabric.renounce(key());
            } else {
                fabric.renounce(key());
                fabric.offer(key(), offer);
            }
            assert_eq!(fetched.try_recv(), Ok(()));
        }
    }

    #[test]
    fn an_engine_that_leaves_takes_its_offers_along() {
        let fabric = Fabric::new();
        let (offer, mut fetched) = offer();
        fabric.join("e".to_owned(), 7, true);
        fabric.offer(key(), offer);
        fabric.leave("e");
        assert!(fetched.try_recv().is_err());
        assert!(!fabric.withdraw(&key()));
    }

    #[tokio::test]
    async fn a_wait_passes_with_its_time_or_when_it_is_expired() {
        let fabric = Fabric::new();
        let hour = Duration::from_secs(3600);
        let mut early = fabric.expiry(hour);
        assert!(early.passed().now_or_never().is_none());
        fabric.expire();
        for _ in 0..2 {
            assert!(early.passed().now_or_never().is_some());
        }
        assert!(fabric.expiry(hour).passed().now_or_never().is_none());
        fabric.expiry(Duration::from_millis(1)).passed().await;
    }

    #[test]
    fn ids_differ_and_look_like_uuids() {
        let fabric = Fabric::new();
        let ids = [fabric.new_engine_id(), fabric.new_engine_id()];
        assert_ne!(ids[0], ids[1]);
        assert_eq!(
            ids[0].split('-').map(str::len).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
    }
}
