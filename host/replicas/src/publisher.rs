//! Publisher: the messages with this router's gauges.

use crate::gauges::{PoolGauges, WorkerGauges};
use crate::id::{RouterId, WorkerKey};
use crate::load_message::{GaugeRows, LoadMessage, MOST_POOLS, MOST_WORKERS, WorkerRow};

/// Interval of full messages in milliseconds.
const FULL_EVERY_MS: u64 = 1_000;

/// Gauges as published last, by worker and by pool.
#[derive(Debug)]
pub struct LoadPublisher {
    router: RouterId,
    table: u32,
    sequence: u64,
    workers: Vec<(WorkerKey, WorkerGauges)>,
    pools: Vec<PoolGauges>,
    /// Time of the next full message.
    full_at_ms: u64,
}

impl LoadPublisher {
    /// Returns the publisher of a router without workers.
    #[must_use]
    pub fn new(router: RouterId) -> Self {
        Self {
            router,
            table: 0,
            sequence: 0,
            workers: Vec::new(),
            pools: Vec::new(),
            full_at_ms: 0,
        }
    }

    /// Replaces the workers. Those beyond [`MOST_WORKERS`] are not published.
    pub fn set_workers(&mut self, keys: impl IntoIterator<Item = WorkerKey>) {
        self.table = self.table.wrapping_add(1);
        self.workers = keys
            .into_iter()
            .take(MOST_WORKERS)
            .map(|key| (key, WorkerGauges::default()))
            .collect();
        self.resend();
    }

    /// Makes the next message a full one, because others may have lost the last ones.
    pub fn resend(&mut self) {
        self.full_at_ms = 0;
    }

    /// Returns the message for these gauges, in the order of the workers; `None` if nothing changed and no full message
    /// is due.
    pub fn message(
        &mut self,
        now_ms: u64,
        gauges: impl Iterator<Item = WorkerGauges>,
        pools: impl Iterator<Item = PoolGauges>,
    ) -> Option<LoadMessage> {
        let pools: Vec<PoolGauges> = pools.take(MOST_POOLS).collect();
        let mut changed = Vec::new();
        for ((row, (_, sent)), gauges) in (0..).zip(&mut self.workers).zip(gauges) {
            if *sent != gauges {
                *sent = gauges;
                changed.push(WorkerRow { row, gauges });
            }
        }
        let is_full = now_ms >= self.full_at_ms;
        let (pools, rows) = if is_full {
            self.full_at_ms = now_ms.saturating_add(FULL_EVERY_MS);
            self.pools.clone_from(&pools);
            (pools, GaugeRows::Full(self.workers.clone()))
        } else {
            let changed_pools = self.changed_pools(&pools);
            if changed.is_empty() && changed_pools.is_empty() {
                return None;
            }
            self.pools = pools;
            (changed_pools, GaugeRows::Delta(changed))
        };
        self.sequence += 1;
        Some(LoadMessage {
            router: self.router,
            table: self.table,
            sequence: self.sequence,
            sent_ms: now_ms,
            pools,
            rows,
        })
    }

    /// Returns the pools that are not as published last.
    fn changed_pools(&self, pools: &[PoolGauges]) -> Vec<PoolGauges> {
        let mut sent = self.pools.iter();
        let is_changed = |pool: &&PoolGauges| sent.next() != Some(*pool);
        pools.iter().filter(is_changed).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use routing::LoadTotals;

    use super::*;
    use crate::id::PoolKey;

    fn gauges(requests: u32) -> WorkerGauges {
        let load = LoadTotals {
            requests,
            ..LoadTotals::default()
        };
        WorkerGauges::new(load, None)
    }

    fn pool(queued: u64) -> PoolGauges {
        PoolGauges {
            queued,
            ..PoolGauges::empty(PoolKey(1))
        }
    }

    #[test]
    fn only_changes_are_published_between_full_messages() {
        let mut publisher = LoadPublisher::new(RouterId(1));
        publisher.set_workers([WorkerKey(7), WorkerKey(8)]);
        let mut message = |now_ms, loads: [u32; 2], queued| {
            let message =
                publisher.message(now_ms, loads.map(gauges).into_iter(), [pool(queued)].into_iter())?;
            Some((message.sequence, message.pools.len(), message.rows))
        };
        let full = |loads: [u32; 2]| {
            let rows = [WorkerKey(7), WorkerKey(8)].into_iter().zip(loads.map(gauges));
            GaugeRows::Full(rows.collect())
        };
        assert_eq!(message(0, [0, 0], 0), Some((1, 1, full([0, 0]))));
        assert_eq!(message(5, [0, 0], 0), None);
        let delta = GaugeRows::Delta(vec![WorkerRow {
            row: 1,
            gauges: gauges(3),
        }]);
        assert_eq!(message(10, [0, 3], 0), Some((2, 0, delta)));
        assert_eq!(message(15, [0, 3], 2), Some((3, 1, GaugeRows::Delta(Vec::new()))));
        assert_eq!(message(1_000, [0, 3], 2), Some((4, 1, full([0, 3]))));
        publisher.resend();
        let again = publisher.message(1_005, [0, 3].map(gauges).into_iter(), [pool(2)].into_iter());
        assert_eq!(again.map(|message| message.rows), Some(full([0, 3])));
    }
}
