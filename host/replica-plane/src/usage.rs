//! Exchange of usage: limits of clients, service of tenants, and what limits mean to a router that lost the others.

use std::collections::HashMap;
use std::num::NonZeroU32;

use replicas::{
    Peers, RouterId, SuccessionSpec, UsageChanges, UsageKey, UsageMessage, UsagePeers, UsagePublisher,
    UsageReading,
};

use crate::source::UsageGroup;

/// Usage of this router and of the others.
pub(crate) struct UsageExchange {
    publisher: UsagePublisher,
    peers: UsagePeers,
    groups: HashMap<u64, Box<dyn UsageGroup>>,
    /// Number of other routers that were heard last.
    heard: u32,
    /// Number of routers by which limits are divided.
    divisor: NonZeroU32,
}

impl std::fmt::Debug for UsageExchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let groups: Vec<&u64> = self.groups.keys().collect();
        f.debug_struct("UsageExchange")
            .field("groups", &groups)
            .field("divisor", &self.divisor)
            .finish_non_exhaustive()
    }
}

impl UsageExchange {
    pub(crate) fn new(router: RouterId, succession: SuccessionSpec) -> Self {
        Self {
            publisher: UsagePublisher::new(router),
            peers: UsagePeers::new(succession),
            groups: HashMap::new(),
            heard: 0,
            divisor: NonZeroU32::MIN,
        }
    }

    /// Takes over the groups of another configuration. Counters keep what they know, gauges are applied again.
    pub(crate) fn follow(&mut self, groups: Vec<Box<dyn UsageGroup>>) {
        self.groups = groups.into_iter().map(|group| (group.group(), group)).collect();
        for group in self.groups.values() {
            group.divide(self.divisor);
        }
        let gauges: Vec<_> = self.peers.gauges().collect();
        for (key, sum) in gauges {
            self.apply(key, replicas::UsageChange::Gauge(sum));
        }
    }

    /// Makes the next messages repeat what others may have missed.
    pub(crate) fn resend(&mut self) {
        self.publisher.resend();
    }

    /// Returns the message with the own usage, if there is something to send.
    pub(crate) fn message(&mut self, now_ms: u64) -> Option<UsageMessage> {
        let mut readings: Vec<(UsageKey, UsageReading)> = Vec::new();
        for (hash, group) in &mut self.groups {
            let group_hash = *hash;
            group.visit(&mut |name, reading| {
                let key = UsageKey {
                    group: group_hash,
                    name,
                };
                readings.push((key, reading));
            });
        }
        self.publisher.message(now_ms, readings)
    }

    /// Applies a message, if its router is alive.
    pub(crate) fn receive(&mut self, now_ms: u64, routers: &Peers, message: &UsageMessage) {
        if routers.is_live(message.router) {
            let mut changes = UsageChanges::new();
            self.peers.apply(now_ms, message, &mut changes);
            self.apply_all(changes);
        }
    }

    /// Forgets the routers that are no longer heard, and divides the limits where this router has lost all others.
    /// Returns the number of routers by which they are divided.
    pub(crate) fn settle(&mut self, routers: &Peers, hears_others: bool) -> NonZeroU32 {
        let mut changes = UsageChanges::new();
        self.peers.retain(|router| routers.is_live(router), &mut changes);
        self.apply_all(changes);
        let (live, lost) = (number(routers.live()), self.lost(routers, hears_others));
        if hears_others || live > 0 {
            self.heard = live.max(lost);
        }
        let divisor = NonZeroU32::MIN.saturating_add(lost);
        if divisor != self.divisor {
            self.divisor = divisor;
            self.groups.values().for_each(|group| group.divide(divisor));
        }
        divisor
    }

    /// Returns `true` if the next [`settle`](Self::settle) divides the limits by more routers.
    pub(crate) fn will_divide_more(&self, routers: &Peers, hears_others: bool) -> bool {
        self.lost(routers, hears_others) >= self.divisor.get()
    }

    /// Returns the number of the others, if this router has lost all of them.
    fn lost(&self, routers: &Peers, hears_others: bool) -> u32 {
        let silent = number(routers.silent());
        match (routers.live(), hears_others) {
            (0, true) => silent,
            (0, false) => silent.max(self.heard),
            _ => 0,
        }
    }

    fn apply_all(&mut self, changes: UsageChanges) {
        for (key, change) in changes {
            self.apply(key, change);
        }
    }

    fn apply(&mut self, key: UsageKey, change: replicas::UsageChange) {
        if let Some(group) = self.groups.get_mut(&key.group) {
            group.apply(key.name, change);
        }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
