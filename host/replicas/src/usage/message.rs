//! Message with a router's usage: the counters and gauges that changed, or that others may have missed.
//!
//! Little endian: version u8, router u64, sequence u64, milliseconds of the sender's monotonic clock u64; the groups
//! (count, then the group's hash u64 and its rows). A row has its name's hash u64, and one number: 0 for a gauge, more
//! for a counter (1 and the distance back to the message that had it first). Then follow the gauge's value, or the
//! counter's total and level. All counts and values are variable-length.

use super::UsageKey;
use crate::id::RouterId;
use crate::wire::{VERSION, WireError, WireReader, put_varint};

/// Maximum number of rows in a message.
pub const MOST_USAGE_ROWS: usize = 2_048;
/// Maximum number of groups in a message.
const MOST_GROUPS: usize = 1_024;
/// Bytes of a row, at least.
const LEAST_ROW: usize = 10;
/// Bytes of a group, at least.
const LEAST_GROUP: usize = 9;

/// Usage of one router at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageMessage {
    /// Sender.
    pub router: RouterId,
    /// Number of the message, from 1.
    pub sequence: u64,
    /// Milliseconds of the sender's monotonic clock when it was sent.
    pub sent_ms: u64,
    /// Rows, by group and name.
    pub rows: Vec<UsageRow>,
}

/// A counter or gauge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageRow {
    /// Identity.
    pub key: UsageKey,
    /// Value.
    pub value: UsageValue,
}

/// Value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageValue {
    /// Number that is now in use.
    Gauge(u64),
    /// Total since the router's start. It wraps around.
    Counter {
        /// Total.
        total: u64,
        /// Level of the counter over all routers, as the sender has it.
        level: u64,
        /// Number of the first message with this counter.
        since: u64,
    },
}

impl UsageMessage {
    /// Returns the bytes. The rows are sorted by their keys.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32 + 24 * self.rows.len());
        bytes.push(VERSION);
        bytes.extend(self.router.0.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.sent_ms.to_le_bytes());
        let groups = || self.rows.chunk_by(|one, next| one.key.group == next.key.group);
        put_varint(&mut bytes, groups().count() as u64);
        for rows in groups() {
            bytes.extend(rows[0].key.group.to_le_bytes());
            put_varint(&mut bytes, rows.len() as u64);
            rows.iter().for_each(|row| self.put_row(&mut bytes, row));
        }
        bytes
    }

    fn put_row(&self, bytes: &mut Vec<u8>, row: &UsageRow) {
        bytes.extend(row.key.name.to_le_bytes());
        match row.value {
            UsageValue::Gauge(value) => {
                put_varint(bytes, 0);
                put_varint(bytes, value);
            }
            UsageValue::Counter { total, level, since } => {
                put_varint(bytes, self.sequence.saturating_sub(since).saturating_add(1));
                put_varint(bytes, total);
                put_varint(bytes, level);
            }
        }
    }

    /// Reads a message. Allocates no more than the message's own bytes can fill.
    ///
    /// # Errors
    /// [`WireError`] where it is not a message of this version, or exceeds a bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = WireReader::begin(bytes)?;
        let router = RouterId(reader.u64()?);
        let (sequence, sent_ms) = (reader.u64()?, reader.u64()?);
        let mut rows: Vec<UsageRow> = Vec::new();
        for _ in 0..reader.count(MOST_GROUPS, LEAST_GROUP)? {
            let group = reader.u64()?;
            let count = reader.count(MOST_USAGE_ROWS - rows.len(), LEAST_ROW)?;
            for _ in 0..count {
                let row = read_row(&mut reader, group, sequence)?;
                // One order of the rows: a counter that occurs twice would be counted by chance.
                if rows.last().is_some_and(|last| last.key >= row.key) {
                    return Err(WireError::Order);
                }
                rows.push(row);
            }
        }
        reader.end()?;
        Ok(Self {
            router,
            sequence,
            sent_ms,
            rows,
        })
    }
}

fn read_row(reader: &mut WireReader<'_>, group: u64, sequence: u64) -> Result<UsageRow, WireError> {
    let name = reader.u64()?;
    let value = match reader.varint(u64::MAX)? {
        0 => UsageValue::Gauge(reader.varint(u64::MAX)?),
        distance => UsageValue::Counter {
            since: sequence.checked_sub(distance - 1).ok_or(WireError::Number)?,
            total: reader.varint(u64::MAX)?,
            level: reader.varint(u64::MAX)?,
        },
    };
    let key = UsageKey { group, name };
    Ok(UsageRow { key, value })
}
