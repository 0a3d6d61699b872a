//! Publisher: the messages with this router's usage.

use std::collections::HashMap;

use super::UsageKey;
use super::message::{MOST_USAGE_ROWS, UsageMessage, UsageRow, UsageValue};
use crate::id::RouterId;

/// Milliseconds after which a row is repeated that others may have missed.
const REPEAT_EVERY_MS: u64 = 1_000;
/// Milliseconds for which a changed counter is repeated.
const REPEAT_FOR_MS: u64 = 10_000;
/// Maximum number of counters and gauges. Those beyond are not published.
pub(super) const MOST_TRACKED: usize = 1 << 15;

/// Own counter or gauge at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageReading {
    /// Number that is now in use.
    Gauge(u64),
    /// Counter.
    Counter {
        /// Total since the counter's beginning. It wraps around.
        total: u64,
        /// Level over all routers; 0 if there is nothing that a new router must know.
        level: u64,
        /// Number of the counter's beginning: a counter that was made again under its name has another one.
        life: u64,
    },
}

/// Usage as published last.
#[derive(Debug)]
pub struct UsagePublisher {
    router: RouterId,
    sequence: u64,
    sent: HashMap<UsageKey, SentRow>,
    /// Rows that were last sent up to this message are repeated.
    resend_up_to: u64,
    /// Time of the next message that is sent even if it has no rows, and at which gauges that no longer exist are
    /// sent as 0 and counters that no longer exist are dropped.
    beat_at_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct SentRow {
    /// Total or gauge as sent.
    number: u64,
    /// Number of the first message with it.
    since: u64,
    /// Number of the counter's beginning.
    life: u64,
    changed_ms: u64,
    is_gauge: bool,
    /// Number and time of the last message with it.
    last: u64,
    sent_ms: u64,
    /// Time of its last reading.
    seen_ms: u64,
}

impl SentRow {
    /// Returns `true` for a gauge whose 0 the other routers may not have.
    fn is_open_gauge(&self, now_ms: u64) -> bool {
        self.is_gauge && (self.number > 0 || now_ms.saturating_sub(self.changed_ms) < REPEAT_FOR_MS)
    }
}

impl UsagePublisher {
    /// Returns the publisher of a router that has published nothing.
    #[must_use]
    pub fn new(router: RouterId) -> Self {
        Self {
            router,
            sequence: 0,
            sent: HashMap::new(),
            resend_up_to: 0,
            beat_at_ms: 0,
        }
    }

    /// Makes the next messages repeat what others may have missed.
    pub fn resend(&mut self) {
        self.resend_up_to = self.sequence;
    }

    /// Returns the message for these readings, at least one a second; `None` if nothing changed and nothing is
    /// repeated. Rows without room go into the next message.
    pub fn message(
        &mut self,
        now_ms: u64,
        readings: impl IntoIterator<Item = (UsageKey, UsageReading)>,
    ) -> Option<UsageMessage> {
        let sequence = self.sequence + 1;
        let mut rows = Vec::new();
        let mut is_whole = true;
        for (key, reading) in readings {
            if rows.len() >= MOST_USAGE_ROWS {
                is_whole = false;
                break;
            }
            rows.extend(self.row(now_ms, sequence, key, reading));
        }
        let beats = now_ms >= self.beat_at_ms;
        if beats {
            self.beat_at_ms = now_ms.saturating_add(REPEAT_EVERY_MS);
            if is_whole {
                self.end_gauges(now_ms, sequence, &mut rows);
                // A counter that is made again later is a new one: it begins at 0 in a later message.
                self.sent
                    .retain(|_, row| row.seen_ms == now_ms || row.is_open_gauge(now_ms));
            }
        }
        // Without rows, a message shows the others that later counters begin at 0.
        if rows.is_empty() && !beats {
            return None;
        }
        rows.sort_unstable_by_key(|row| row.key);
        rows.dedup_by_key(|row| row.key);
        self.sequence = sequence;
        Some(UsageMessage {
            router: self.router,
            sequence,
            sent_ms: now_ms,
            rows,
        })
    }

    /// Appends rows of 0 for the gauges that were not read, as far as there is room: their last value would count at
    /// the other routers for good.
    fn end_gauges(&mut self, now_ms: u64, sequence: u64, rows: &mut Vec<UsageRow>) {
        let unread = self
            .sent
            .iter()
            .filter(|(_, row)| row.seen_ms != now_ms && row.is_open_gauge(now_ms));
        let room = MOST_USAGE_ROWS.saturating_sub(rows.len());
        let ended: Vec<UsageKey> = unread.map(|(key, _)| *key).take(room).collect();
        for key in ended {
            rows.extend(self.row(now_ms, sequence, key, UsageReading::Gauge(0)));
        }
    }

    /// Returns the row of a reading that is to be sent, and notes it as sent.
    fn row(&mut self, now_ms: u64, sequence: u64, key: UsageKey, reading: UsageReading) -> Option<UsageRow> {
        let (number, level, life) = match reading {
            UsageReading::Gauge(value) => (value, 0, 0),
            UsageReading::Counter { total, level, life } => (total, level, life),
        };
        let known = self.sent.get_mut(&key).map(|known| {
            known.seen_ms = now_ms;
            *known
        });
        // A counter that was made again is a new one: its lower total gives nothing back.
        let known = known.filter(|known| known.life == life);
        let has_changed = known.map_or(number != 0, |known| known.number != number);
        let is_new_without_room = self.sent.len() >= MOST_TRACKED && !self.sent.contains_key(&key);
        if is_new_without_room || (known.is_none() && !has_changed) {
            return None;
        }
        let changed_ms = match known {
            Some(known) if !has_changed => known.changed_ms,
            _ => now_ms,
        };
        let matters = match reading {
            UsageReading::Gauge(value) => value > 0,
            UsageReading::Counter { .. } => level > 0,
        };
        let is_recent = now_ms.saturating_sub(changed_ms) < REPEAT_FOR_MS;
        let is_due = known.is_some_and(|known| {
            now_ms.saturating_sub(known.sent_ms) >= REPEAT_EVERY_MS || known.last <= self.resend_up_to
        });
        if !has_changed && !(is_due && (matters || is_recent)) {
            return None;
        }
        let since = known.map_or(sequence, |known| known.since);
        let sent = SentRow {
            number,
            since,
            life,
            changed_ms,
            is_gauge: matches!(reading, UsageReading::Gauge(_)),
            last: sequence,
            sent_ms: now_ms,
            seen_ms: now_ms,
        };
        self.sent.insert(key, sent);
        let value = match reading {
            UsageReading::Gauge(value) => UsageValue::Gauge(value),
            UsageReading::Counter { total, level, .. } => UsageValue::Counter { total, level, since },
        };
        Some(UsageRow { key, value })
    }
}
