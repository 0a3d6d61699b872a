//! One other router: its gauges as reported, and the part of them that counts.

use std::collections::HashMap;

use crate::delay::DelayEstimate;
use crate::gauges::{PoolGauges, WorkerGauges};
use crate::hello::HelloMessage;
use crate::id::{PoolKey, WorkerKey};
use crate::load_message::WorkerRow;

/// Another router.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) hello: Option<HelloMessage>,
    pub(crate) delay: DelayEstimate,
    /// Own time at which its newest message was sent.
    pub(crate) fresh_ms: u64,
    /// Number of its newest load message.
    pub(crate) sequence: u64,
    /// Number of its newest message with samples of costs.
    pub(crate) cost_sequence: u64,
    /// Number of its list of workers, once a full message was received.
    pub(crate) table: Option<u32>,
    pub(crate) rows: Vec<PeerRow>,
    pub(crate) pools: HashMap<PoolKey, PoolGauges>,
    pub(crate) presence: PeerPresence,
    /// Set once another run of the same name was heard: it may be this router's successor.
    pub(crate) has_namesake: bool,
}

/// Presence of another router.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PeerPresence {
    /// Heard within the time of silence.
    #[default]
    Heard,
    /// Silent: its gauges fade.
    Silent,
    /// Silent, and a run of the same name is heard: its process has ended, and its requests with it.
    Replaced,
}

/// Silence after which the gauges of a router fade that has a namesake: three missed hellos.
const SUCCEEDED_MS: u64 = 750;

/// Gauges of another router at one worker.
#[derive(Debug, Clone)]
pub(crate) struct PeerRow {
    pub(crate) key: WorkerKey,
    /// Own place of the worker; `None` if this router does not have it.
    pub(crate) slot: Option<usize>,
    pub(crate) reported: WorkerGauges,
    /// Part that is in the sums.
    pub(crate) counted: WorkerGauges,
}

impl Peer {
    /// Records that a message was sent at that time of the sender's clock. A delay that stays the same for
    /// `settled_after_ms` is a difference of the clocks.
    pub(crate) fn heard(&mut self, now_ms: u64, sent_ms: u64, settled_after_ms: u64) {
        let delay_ms = self.delay.receive(now_ms, sent_ms, settled_after_ms);
        self.fresh_ms = self.fresh_ms.max(now_ms.saturating_sub(delay_ms));
    }

    /// Returns whether it is silent.
    pub(crate) fn is_silent(&self) -> bool {
        self.presence != PeerPresence::Heard
    }

    /// Updates its presence at a message. Returns `true` if it is or was silent, so that its gauges fade.
    pub(crate) fn update_presence(&mut self, now_ms: u64, dead_after_ms: u64) -> bool {
        let was_silent = self.is_silent();
        if !self.is_silent_at(now_ms, dead_after_ms) {
            self.presence = PeerPresence::Heard;
        } else if !was_silent {
            self.presence = PeerPresence::Silent;
        }
        was_silent || self.is_silent()
    }

    /// Returns the milliseconds since its newest message was sent.
    pub(crate) fn silence_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.fresh_ms)
    }

    /// Returns whether it is silent for so long that its gauges fade.
    pub(crate) fn is_silent_at(&self, now_ms: u64, dead_after_ms: u64) -> bool {
        let most_ms = match self.has_namesake {
            true => dead_after_ms.min(SUCCEEDED_MS),
            false => dead_after_ms,
        };
        self.silence_ms(now_ms) > most_ms
    }

    /// Returns its rows for the workers of a full message. What counts of each worker is kept.
    pub(crate) fn replaced_rows(
        &self,
        rows: &[(WorkerKey, WorkerGauges)],
        slots: &HashMap<WorkerKey, usize>,
    ) -> Vec<PeerRow> {
        let same_keys = self.rows.len() == rows.len()
            && self.rows.iter().zip(rows).all(|(old, (key, _))| old.key == *key);
        let counted: HashMap<WorkerKey, WorkerGauges> = if same_keys {
            HashMap::new()
        } else {
            self.rows.iter().map(|row| (row.key, row.counted)).collect()
        };
        let counted_of = |at: usize, key: &WorkerKey| match same_keys {
            true => self.rows[at].counted,
            false => counted.get(key).copied().unwrap_or_default(),
        };
        rows.iter()
            .enumerate()
            .map(|(at, (key, reported))| PeerRow {
                key: *key,
                slot: slots.get(key).copied(),
                reported: *reported,
                counted: counted_of(at, key),
            })
            .collect()
    }

    /// Returns what counts of its gauges at one of the own workers.
    pub(crate) fn counted_at(&self, slot: usize) -> Option<&WorkerGauges> {
        // Routers of one configuration have the workers in the same order.
        let is_there = |row: &&PeerRow| row.slot == Some(slot);
        let row = self.rows.get(slot).filter(is_there);
        row.or_else(|| self.rows.iter().find(is_there))
            .map(|row| &row.counted)
    }

    /// Records changed rows. Rows that the last full message did not have are ignored.
    pub(crate) fn change_rows(&mut self, rows: &[WorkerRow]) {
        for WorkerRow { row, gauges } in rows {
            if let Some(known) = self.rows.get_mut(*row as usize) {
                known.reported = *gauges;
            }
        }
    }
}
