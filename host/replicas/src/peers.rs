//! The other routers, and the sums of their gauges.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use routing::{WorkerId, WorkerLoad};

use crate::cost_message::{CostMessage, WorkerSamples};
use crate::gauges::{PoolGauges, WorkerGauges};
use crate::hello::HelloMessage;
use crate::id::{PoolKey, RouterId, WorkerKey};
use crate::load_message::{GaugeRows, LoadMessage};
use crate::member::{MemberReport, PeerCounts};
use crate::peer::{Peer, PeerPresence};
use crate::wire::WireError;

/// Maximum number of other routers.
const MOST_PEERS: usize = 64;
/// Number of routers that have left whose late messages are recognised.
const MOST_LEFT: usize = 64;

/// Times of the others' silence.
#[derive(Debug, Clone, Copy)]
pub struct PeersSpec {
    /// Silence after which a router's gauges count only as far as the engines' own figures confirm them.
    pub dead_after_ms: u64,
    /// Silence after which a router is removed, and time after which a delay that stays the same is a difference of the
    /// clocks: the router's may have stood still.
    pub forget_after_ms: u64,
}

/// A worker of this router.
#[derive(Debug, Clone)]
pub struct SharedWorker {
    /// Key that all routers have for it.
    pub key: WorkerKey,
    /// Id in this router.
    pub id: WorkerId,
    /// Its load, which receives the sums.
    pub load: Arc<WorkerLoad>,
}

/// The other routers. One thread owns it; requests read only the sums in the workers' loads.
#[derive(Debug)]
pub struct Peers {
    own: RouterId,
    spec: PeersSpec,
    workers: Vec<SharedWorker>,
    slots: HashMap<WorkerKey, usize>,
    sums: Vec<WorkerGauges>,
    peers: BTreeMap<RouterId, Peer>,
    left: VecDeque<RouterId>,
    counts: PeerCounts,
    /// Workers with freed capacity since the last [`Self::take_freed`].
    freed: Vec<usize>,
}

impl Peers {
    /// Returns the state of a router without peers and workers.
    #[must_use]
    pub fn new(own: RouterId, spec: PeersSpec) -> Self {
        Self {
            own,
            spec,
            workers: Vec::new(),
            slots: HashMap::new(),
            sums: Vec::new(),
            peers: BTreeMap::new(),
            left: VecDeque::new(),
            counts: PeerCounts::default(),
            freed: Vec::new(),
        }
    }

    /// Replaces the workers. Those that are gone get their sums removed.
    pub fn set_workers(&mut self, workers: Vec<SharedWorker>) {
        let slots = workers
            .iter()
            .enumerate()
            .map(|(slot, worker)| (worker.key, slot));
        let slots: HashMap<WorkerKey, usize> = slots.collect();
        for old in &self.workers {
            let stays = slots
                .get(&old.key)
                .is_some_and(|slot| Arc::ptr_eq(&workers[*slot].load, &old.load));
            if !stays {
                publish(old, &WorkerGauges::default());
            }
        }
        let mut sums = vec![WorkerGauges::default(); workers.len()];
        for row in self.peers.values_mut().flat_map(|peer| &mut peer.rows) {
            row.slot = slots.get(&row.key).copied();
            match row.slot {
                Some(slot) => {
                    sums[slot].replace(&WorkerGauges::default(), &row.counted);
                    let first = sums[slot].first_order().min(row.counted.first_order());
                    sums[slot].first_order = first.to_bits();
                }
                None => row.counted = WorkerGauges::default(),
            }
        }
        (self.workers, self.slots, self.sums) = (workers, slots, sums);
        for (worker, sum) in self.workers.iter().zip(&self.sums) {
            publish(worker, sum);
        }
        self.freed.clear();
        let ids: Vec<RouterId> = self.peers.keys().copied().collect();
        ids.into_iter().for_each(|router| self.settle(router));
    }

    /// Applies the bytes of a load message. A caller that has the sender compares it with that of the message, and
    /// [applies](Self::apply) it then.
    ///
    /// # Errors
    /// [`WireError`] where it cannot be read; nothing is changed then.
    pub fn receive(&mut self, now_ms: u64, bytes: &[u8]) -> Result<(), WireError> {
        let message = LoadMessage::decode(bytes).inspect_err(|_| self.counts.refused += 1)?;
        self.apply(now_ms, &message);
        Ok(())
    }

    /// Applies a load message.
    pub fn apply(&mut self, now_ms: u64, message: &LoadMessage) {
        let router = message.router;
        if !self.admit(router) {
            return;
        }
        let peer = self.peers.entry(router).or_default();
        if message.sequence <= peer.sequence {
            self.counts.old += 1;
            return;
        }
        if peer.sequence > 0 {
            let missing = message.sequence - peer.sequence - 1;
            self.counts.missing = self.counts.missing.saturating_add(missing);
        }
        peer.sequence = message.sequence;
        peer.heard(now_ms, message.sent_ms, self.spec.forget_after_ms);
        match &message.rows {
            GaugeRows::Full(rows) => {
                let kept = peer.replaced_rows(rows, &self.slots);
                let old = std::mem::replace(&mut peer.rows, kept);
                peer.table = Some(message.table);
                peer.pools.clear();
                self.discount(&old, router);
            }
            GaugeRows::Delta(rows) if peer.table == Some(message.table) => peer.change_rows(rows),
            GaugeRows::Delta(_) => self.counts.unknown_table += 1,
        }
        let mut fades = false;
        if let Some(peer) = self.peers.get_mut(&router) {
            let pools = message.pools.iter().map(|pool| (pool.pool, *pool));
            peer.pools.extend(pools);
            fades = peer.update_presence(now_ms, self.spec.dead_after_ms);
        }
        self.counts.applied += 1;
        match &message.rows {
            // All other rows count as they were reported.
            GaugeRows::Delta(rows) if !fades => {
                self.settle_rows(router, rows.iter().map(|changed| changed.row as usize));
            }
            _ => self.settle(router),
        }
    }

    /// Teaches the own workers' cost models the bytes of a message with samples, as [`Self::apply_costs`] does.
    ///
    /// # Errors
    /// [`WireError`] where it cannot be read; nothing is learned then.
    pub fn receive_costs(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let message = CostMessage::decode(bytes).inspect_err(|_| self.counts.refused += 1)?;
        self.apply_costs(&message);
        Ok(())
    }

    /// Teaches the own workers' cost models the samples of a message. Those of a router that is not heard, or that were
    /// learned already, teach nothing.
    pub fn apply_costs(&mut self, message: &CostMessage) {
        let peer = self
            .peers
            .get_mut(&message.router)
            .filter(|peer| !peer.is_silent());
        let Some(peer) = peer.filter(|peer| message.sequence > peer.cost_sequence) else {
            self.counts.old += 1;
            return;
        };
        peer.cost_sequence = message.sequence;
        self.counts.applied += 1;
        for WorkerSamples { worker, samples } in &message.workers {
            if let Some(slot) = self.slots.get(worker) {
                let load = &self.workers[*slot].load;
                samples.iter().for_each(|sample| load.learn_elsewhere(sample));
            }
        }
    }

    /// Counts a message that cannot be read, or that names another sender than its subject.
    pub fn refuse(&mut self) {
        self.counts.refused += 1;
    }

    /// Records a hello. Other runs of that name fade after a shorter silence: a router that died and restarted has a
    /// new id and its old name.
    pub fn hello(&mut self, now_ms: u64, router: RouterId, hello: HelloMessage) {
        if self.admit(router) {
            for (other, peer) in &mut self.peers {
                let named = peer.hello.as_ref().map(|hello| &hello.name);
                peer.has_namesake |= *other != router && named == Some(&hello.name);
            }
            let peer = self.peers.entry(router).or_default();
            peer.heard(now_ms, hello.sent_ms, self.spec.forget_after_ms);
            peer.hello = Some(hello);
            self.counts.applied += 1;
        }
    }

    /// Removes a router that has sent its goodbye.
    pub fn goodbye(&mut self, router: RouterId) {
        if self.remove(router) {
            self.remember_left(router);
        }
    }

    /// Ages the gauges of silent routers, and removes those that are silent for too long. To be called a few times a
    /// second.
    pub fn tick(&mut self, now_ms: u64) {
        let spec = self.spec;
        let expired: Vec<RouterId> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.silence_ms(now_ms) > spec.forget_after_ms)
            .map(|(router, _)| *router)
            .collect();
        for router in expired {
            self.counts.expired += 1;
            self.remove(router);
        }
        let heard = self.peers.values();
        let heard = heard.filter(|peer| !peer.is_silent_at(now_ms, spec.dead_after_ms));
        let names: HashSet<String> = heard
            .filter_map(|peer| Some(peer.hello.as_ref()?.name.clone()))
            .collect();
        let mut fading = Vec::new();
        for (router, peer) in &mut self.peers {
            let was_silent = peer.is_silent();
            let is_named = |hello: &HelloMessage| names.contains(&hello.name);
            peer.presence = match peer.is_silent_at(now_ms, spec.dead_after_ms) {
                false => PeerPresence::Heard,
                true if peer.hello.as_ref().is_some_and(is_named) => PeerPresence::Replaced,
                true => PeerPresence::Silent,
            };
            if peer.is_silent() || was_silent {
                fading.push(*router);
            }
        }
        fading.into_iter().for_each(|router| self.settle(router));
    }

    /// Returns the workers at which other routers have less in flight than before, since the last call.
    pub fn take_freed(&mut self) -> Vec<WorkerId> {
        let mut slots = std::mem::take(&mut self.freed);
        slots.sort_unstable();
        slots.dedup();
        slots.iter().map(|slot| self.workers[*slot].id).collect()
    }

    /// Returns the sums over the routers that are not silent, at a pool.
    #[must_use]
    pub fn pool(&self, pool: PoolKey) -> PoolGauges {
        let live = self.peers.values().filter(|peer| !peer.is_silent());
        live.filter_map(|peer| peer.pools.get(&pool))
            .fold(PoolGauges::empty(pool), PoolGauges::plus)
    }

    /// Returns the sum over the other routers at one of the own workers.
    #[must_use]
    pub fn sum(&self, worker: WorkerKey) -> Option<WorkerGauges> {
        self.slots.get(&worker).map(|slot| self.sums[*slot])
    }

    /// Returns the other routers, by their id.
    #[must_use]
    pub fn members(&self, now_ms: u64) -> Vec<MemberReport> {
        let report = |(router, peer): (&RouterId, &Peer)| MemberReport {
            router: *router,
            hello: peer.hello.clone(),
            silence_ms: peer.silence_ms(now_ms),
            delay_ms: peer.delay.newest_ms(),
            is_silent: peer.is_silent(),
            requests: peer.rows.iter().map(|row| row.counted.requests()).sum(),
            unknown_workers: peer.rows.iter().filter(|row| row.slot.is_none()).count(),
        };
        self.peers.iter().map(report).collect()
    }

    /// Returns the number of other routers that are not silent.
    #[must_use]
    pub fn live(&self) -> usize {
        self.peers.values().filter(|peer| !peer.is_silent()).count()
    }

    /// Returns the number of other routers that are silent, but not removed yet.
    #[must_use]
    pub fn silent(&self) -> usize {
        self.peers.len() - self.live()
    }

    /// Returns whether a router is heard.
    #[must_use]
    pub fn is_live(&self, router: RouterId) -> bool {
        self.peers.get(&router).is_some_and(|peer| !peer.is_silent())
    }

    /// Returns whether a router is known, heard or silent.
    #[must_use]
    pub fn has(&self, router: RouterId) -> bool {
        self.peers.contains_key(&router)
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> PeerCounts {
        self.counts
    }
}

/// Internal parts.
impl Peers {
    /// Returns whether messages of that router are taken.
    fn admit(&mut self, router: RouterId) -> bool {
        if router == self.own {
            return false;
        }
        if self.left.contains(&router) {
            self.counts.old += 1;
            return false;
        }
        let has_place = self.peers.contains_key(&router) || self.peers.len() < MOST_PEERS;
        self.counts.refused += u64::from(!has_place);
        has_place
    }

    fn remember_left(&mut self, router: RouterId) {
        if self.left.len() >= MOST_LEFT {
            self.left.pop_front();
        }
        self.left.push_back(router);
    }

    /// Removes what counts of rows that a full message no longer has.
    fn discount(&mut self, old: &[crate::peer::PeerRow], router: RouterId) {
        let Some(peer) = self.peers.get(&router) else {
            return;
        };
        let has_same_keys =
            old.len() == peer.rows.len() && old.iter().zip(&peer.rows).all(|(old, new)| old.key == new.key);
        if has_same_keys {
            return;
        }
        let kept: HashSet<WorkerKey> = peer.rows.iter().map(|row| row.key).collect();
        for row in old.iter().filter(|row| !kept.contains(&row.key)) {
            if let Some(slot) = row.slot {
                self.change(slot, &row.counted, &WorkerGauges::default());
            }
        }
    }

    /// Brings what counts of a router's gauges in line with what it reported, and with the engines if it is silent.
    fn settle(&mut self, router: RouterId) {
        let rows = self.peers.get(&router).map_or(0, |peer| peer.rows.len());
        self.settle_rows(router, 0..rows);
    }

    /// Brings what counts of some of a router's rows in line.
    fn settle_rows(&mut self, router: RouterId, rows: impl Iterator<Item = usize>) {
        let Some(mut peer) = self.peers.remove(&router) else {
            return;
        };
        for at in rows {
            let Some(row) = peer.rows.get_mut(at) else {
                continue;
            };
            let Some(slot) = row.slot else { continue };
            let counts = match peer.presence {
                PeerPresence::Heard => row.reported,
                PeerPresence::Silent => self.confirmed(slot, &row.reported, &row.counted),
                PeerPresence::Replaced => WorkerGauges::default(),
            };
            if counts != row.counted {
                self.change(slot, &row.counted, &counts);
                row.counted = counts;
            }
        }
        self.peers.insert(router, peer);
    }

    /// Returns the part of a silent router's gauges that the engine confirms: its requests beyond those of this router
    /// and the others.
    fn confirmed(&self, slot: usize, reported: &WorkerGauges, counted: &WorkerGauges) -> WorkerGauges {
        let load = &self.workers[slot].load;
        let Some((report, _)) = load.engine() else {
            return WorkerGauges::default();
        };
        let at_engine = [report.running, report.waiting]
            .into_iter()
            .filter(|number| number.is_finite());
        let others = self.sums[slot].requests().wrapping_sub(counted.requests());
        let explained = u64::from(load.own().requests).saturating_add(others);
        let left = (at_engine.sum::<f64>() as u64).saturating_sub(explained);
        // Once given up, requests do not count again before the router is heard.
        let most = if counted.is_zero() { 0 } else { counted.requests() };
        reported.limited_to(left.min(most))
    }

    /// Removes a router. Returns whether it was known.
    fn remove(&mut self, router: RouterId) -> bool {
        let Some(peer) = self.peers.remove(&router) else {
            return false;
        };
        for row in &peer.rows {
            if let Some(slot) = row.slot {
                self.change(slot, &row.counted, &WorkerGauges::default());
            }
        }
        true
    }

    fn change(&mut self, slot: usize, old: &WorkerGauges, new: &WorkerGauges) {
        self.sums[slot].replace(old, new);
        let first = &mut self.sums[slot].first_order;
        // The first of all is the least. If it was this router's, the others are looked through when it settles.
        if new.first_order() < f64::from_bits(*first) {
            *first = new.first_order;
        } else if old.first_order == *first {
            *first = self
                .peers
                .values()
                .filter_map(|peer| peer.counted_at(slot))
                .map(|gauges| gauges.first_order())
                .chain([new.first_order()])
                .fold(f64::INFINITY, f64::min)
                .to_bits();
        }
        publish(&self.workers[slot], &self.sums[slot]);
        if new.gives_room_since(old) {
            self.freed.push(slot);
        }
    }
}

/// Writes a sum where requests read it.
fn publish(worker: &SharedWorker, sum: &WorkerGauges) {
    worker.load.set_others(sum.load());
    worker.load.others().set_held(&sum.held());
}
