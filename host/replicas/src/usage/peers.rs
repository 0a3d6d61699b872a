//! Usage of the other routers: what is new in their messages.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::UsageKey;
use super::message::{UsageMessage, UsageValue};
use super::publisher::MOST_TRACKED;
use super::succession::{MessageTimes, Succession, SuccessionSpec};
use crate::id::RouterId;

/// Change of a counter or gauge by other routers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageChange {
    /// Amount by which a counter grew at another router. Less than 0: an amount was given back.
    Used(i64),
    /// Level of a counter whose growth was not seen.
    Level(u64),
    /// Level of a counter at a router all of whose growth was seen. It follows the growth, and is not sent if it is 0.
    Known(u64),
    /// Sum of a gauge over the other routers.
    Gauge(u64),
}

/// Changes, in the order in which they apply.
pub type UsageChanges = Vec<(UsageKey, UsageChange)>;

/// Usage of the other routers. The caller passes the ids of the live ones.
#[derive(Debug)]
pub struct UsagePeers {
    spec: SuccessionSpec,
    origins: BTreeMap<RouterId, UsageOrigin>,
    gauges: HashMap<UsageKey, u64>,
}

#[derive(Debug)]
struct UsageOrigin {
    /// Number of the first message that was received.
    first: u64,
    /// Number of the newest one.
    newest: u64,
    times: MessageTimes,
    known: HashMap<UsageKey, KnownNumber>,
}

#[derive(Debug, Clone, Copy)]
enum KnownNumber {
    Gauge(u64),
    Total { total: u64, since: u64 },
}

impl UsagePeers {
    /// Returns the state of a router that heard of no usage.
    #[must_use]
    pub fn new(spec: SuccessionSpec) -> Self {
        Self {
            spec,
            origins: BTreeMap::new(),
            gauges: HashMap::new(),
        }
    }

    /// Applies a message that was received at that own time. A message that is not newer than the newest one changes
    /// nothing.
    pub fn apply(&mut self, now_ms: u64, message: &UsageMessage, changes: &mut UsageChanges) {
        let origin = self.origins.entry(message.router).or_insert(UsageOrigin {
            first: message.sequence,
            newest: 0,
            times: MessageTimes::new(now_ms, message.sent_ms),
            known: HashMap::new(),
        });
        if message.sequence <= origin.newest {
            return;
        }
        origin.newest = message.sequence;
        let succession = origin.times.follow(now_ms, message.sent_ms, self.spec);
        if succession != Succession::Next {
            origin.begin_again();
        }
        for row in &message.rows {
            if origin.known.len() >= MOST_TRACKED && !origin.known.contains_key(&row.key) {
                continue;
            }
            match row.value {
                UsageValue::Gauge(value) => {
                    let before = origin.known.insert(row.key, KnownNumber::Gauge(value));
                    let before = match before {
                        Some(KnownNumber::Gauge(before)) => before,
                        _ => 0,
                    };
                    change_gauge(&mut self.gauges, row.key, before, value, changes);
                }
                // Its level is that of an earlier time.
                UsageValue::Counter { .. } if succession == Succession::Backlog => {}
                UsageValue::Counter { total, level, since } => {
                    let news = origin.count(row.key, total, level, since);
                    changes.extend(news.into_iter().flatten().map(|change| (row.key, change)));
                }
            }
        }
    }

    /// Forgets the routers that are not alive: their gauges no longer count, and counters begin with their levels when
    /// such a router is heard again.
    pub fn retain(&mut self, is_alive: impl Fn(RouterId) -> bool, changes: &mut UsageChanges) {
        let gone: Vec<RouterId> = self.origins.keys().copied().filter(|id| !is_alive(*id)).collect();
        for router in gone {
            let Some(origin) = self.origins.remove(&router) else {
                continue;
            };
            for (key, known) in origin.known {
                if let KnownNumber::Gauge(value) = known {
                    change_gauge(&mut self.gauges, key, value, 0, changes);
                }
            }
        }
    }

    /// Returns the gauges that other routers use, for those who did not hear of them before.
    pub fn gauges(&self) -> impl Iterator<Item = (UsageKey, u64)> {
        self.gauges.iter().map(|(key, sum)| (*key, *sum))
    }

    /// Returns the routers whose usage is known.
    #[must_use]
    pub fn origins(&self) -> HashSet<RouterId> {
        self.origins.keys().copied().collect()
    }
}

impl UsageOrigin {
    /// Forgets the counters, as if the newest message were the first one.
    fn begin_again(&mut self) {
        self.first = self.newest;
        self.known
            .retain(|_, number| matches!(number, KnownNumber::Gauge(_)));
    }

    /// Records a counter's total, and returns the increase.
    fn count(&mut self, key: UsageKey, total: u64, level: u64, since: u64) -> [Option<UsageChange>; 2] {
        let before = self.known.insert(key, KnownNumber::Total { total, since });
        let before = match before {
            Some(KnownNumber::Total { total, since: began }) if began == since => Some(total),
            // Its first message came after the first one from that router, so it began at 0.
            _ => (since > self.first).then_some(0),
        };
        let Some(before) = before else {
            return [Some(UsageChange::Level(level)), None];
        };
        let more = total.wrapping_sub(before).cast_signed();
        [
            (more != 0).then_some(UsageChange::Used(more)),
            (level > 0).then_some(UsageChange::Known(level)),
        ]
    }
}

fn change_gauge(
    gauges: &mut HashMap<UsageKey, u64>,
    key: UsageKey,
    before: u64,
    now: u64,
    changes: &mut UsageChanges,
) {
    if before == now {
        return;
    }
    let sum = gauges.entry(key).or_default();
    *sum = sum.wrapping_sub(before).wrapping_add(now);
    changes.push((key, UsageChange::Gauge(*sum)));
    if *sum == 0 {
        gauges.remove(&key);
    }
}
