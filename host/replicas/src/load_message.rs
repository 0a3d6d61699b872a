//! Message with a router's gauges: all of them, or those that changed.
//!
//! Little endian: version u8, kind u8, router u64, table u32, sequence u64, milliseconds of the sender's monotonic
//! clock u64; the pools (count, then key u64, the queued requests and the use of the two budgets each); the workers
//! (count, then rows). A row of a full message begins with the worker's key. A row of a delta begins with its
//! distance to the row before, in the order of the full message with the same table. Then follow five totals, a mask
//! of the classes with held requests, and where it has one, the order of the first (f64) and two numbers for each
//! class. Counts and totals are variable-length.

use routing::{BudgetUse, HELD_CLASSES};

use crate::gauges::{LOADS, PoolGauges, WorkerGauges};
use crate::id::{PoolKey, RouterId, WorkerKey};
use crate::wire::{VERSION, WireError, WireReader, put_varint};

/// Maximum number of workers in a message.
pub const MOST_WORKERS: usize = 10_000;
/// Maximum number of pools in a message.
pub const MOST_POOLS: usize = 1_000;
/// Maximum number of requests in a total.
const MOST_REQUESTS: u64 = 1 << 24;
/// Maximum number of tokens in a total.
const MOST_TOKENS: u64 = 1 << 44;
/// Bytes of a row without held requests, at least.
const LEAST_ROW: usize = 7;
/// Bytes of a pool, at least.
const LEAST_POOL: usize = 11;

/// Gauges of one router at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadMessage {
    /// Sender.
    pub router: RouterId,
    /// Number of the sender's list of workers. Rows of a delta count in the list of the full message with this number.
    pub table: u32,
    /// Number of the message, from 1.
    pub sequence: u64,
    /// Milliseconds of the sender's monotonic clock when it was sent.
    pub sent_ms: u64,
    /// Pools: all of a full message, the changed ones of a delta.
    pub pools: Vec<PoolGauges>,
    /// Workers.
    pub rows: GaugeRows,
}

/// Gauges of workers in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GaugeRows {
    /// All workers of the sender.
    Full(Vec<(WorkerKey, WorkerGauges)>),
    /// Workers whose gauges changed.
    Delta(Vec<WorkerRow>),
}

/// Changed gauges of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerRow {
    /// Row of the worker in the full message.
    pub row: u32,
    /// Its gauges.
    pub gauges: WorkerGauges,
}

impl LoadMessage {
    /// Returns the bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        let (kind, count) = match &self.rows {
            GaugeRows::Full(rows) => (0, rows.len()),
            GaugeRows::Delta(rows) => (1, rows.len()),
        };
        bytes.extend([VERSION, kind]);
        bytes.extend(self.router.0.to_le_bytes());
        bytes.extend(self.table.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.sent_ms.to_le_bytes());
        put_varint(&mut bytes, self.pools.len() as u64);
        for pool in &self.pools {
            bytes.extend(pool.pool.0.to_le_bytes());
            put_varint(&mut bytes, pool.queued.min(MOST_REQUESTS));
            put_varint(&mut bytes, pool.budget.requests.min(MOST_REQUESTS));
            put_varint(&mut bytes, pool.budget.tokens.min(MOST_TOKENS));
        }
        put_varint(&mut bytes, count as u64);
        match &self.rows {
            GaugeRows::Full(rows) => {
                for (key, gauges) in rows {
                    bytes.extend(key.0.to_le_bytes());
                    put_gauges(&mut bytes, gauges);
                }
            }
            GaugeRows::Delta(rows) => {
                let mut next = 0;
                for WorkerRow { row, gauges } in rows {
                    put_varint(&mut bytes, u64::from(row.saturating_sub(next)));
                    next = row.saturating_add(1);
                    put_gauges(&mut bytes, gauges);
                }
            }
        }
        bytes
    }

    /// Returns whether it has only what changed.
    #[must_use]
    pub fn is_delta(&self) -> bool {
        matches!(self.rows, GaugeRows::Delta(_))
    }

    /// Reads a message. Allocates no more than the message's own bytes can fill.
    ///
    /// # Errors
    /// [`WireError`] where it is not a message of this version, or exceeds a bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = WireReader::begin(bytes)?;
        let kind = reader.u8()?;
        let router = RouterId(reader.u64()?);
        let (table, sequence, sent_ms) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let pools = read_pools(&mut reader)?;
        let rows = match kind {
            0 => GaugeRows::Full(read_full(&mut reader)?),
            1 => GaugeRows::Delta(read_delta(&mut reader)?),
            other => return Err(WireError::Kind(other)),
        };
        reader.end()?;
        Ok(Self {
            router,
            table,
            sequence,
            sent_ms,
            pools,
            rows,
        })
    }
}

fn read_pools(reader: &mut WireReader<'_>) -> Result<Vec<PoolGauges>, WireError> {
    let count = reader.count(MOST_POOLS, LEAST_POOL)?;
    let pool = |reader: &mut WireReader<'_>| {
        Ok(PoolGauges {
            pool: PoolKey(reader.u64()?),
            queued: reader.varint(MOST_REQUESTS)?,
            budget: BudgetUse {
                requests: reader.varint(MOST_REQUESTS)?,
                tokens: reader.varint(MOST_TOKENS)?,
            },
        })
    };
    (0..count).map(|_| pool(reader)).collect()
}

fn read_full(reader: &mut WireReader<'_>) -> Result<Vec<(WorkerKey, WorkerGauges)>, WireError> {
    let count = reader.count(MOST_WORKERS, LEAST_ROW + 7)?;
    let row = |reader: &mut WireReader<'_>| Ok((WorkerKey(reader.u64()?), read_gauges(reader)?));
    (0..count).map(|_| row(reader)).collect()
}

fn read_delta(reader: &mut WireReader<'_>) -> Result<Vec<WorkerRow>, WireError> {
    let count = reader.count(MOST_WORKERS, LEAST_ROW)?;
    let mut next = 0_u32;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let distance = reader.varint(u64::from(u32::MAX))?;
        let row = u64::from(next) + distance;
        let row = u32::try_from(row)
            .ok()
            .filter(|row| (*row as usize) < MOST_WORKERS);
        let row = row.ok_or(WireError::Order)?;
        next = row + 1;
        let gauges = read_gauges(reader)?;
        rows.push(WorkerRow { row, gauges });
    }
    Ok(rows)
}

fn put_gauges(bytes: &mut Vec<u8>, gauges: &WorkerGauges) {
    let (loads, held) = gauges.totals.split_at(LOADS);
    for (at, total) in loads.iter().enumerate() {
        put_varint(
            bytes,
            (*total).min(if at < 2 { MOST_REQUESTS } else { MOST_TOKENS }),
        );
    }
    let classes = held.chunks_exact(2);
    let mask = classes.clone().enumerate().fold(0_u16, |mask, (class, two)| {
        mask | (u16::from(two.iter().any(|total| *total > 0)) << class)
    });
    put_varint(bytes, mask.into());
    if mask != 0 {
        bytes.extend(gauges.first_order.to_le_bytes());
    }
    for two in classes.filter(|two| two.iter().any(|total| *total > 0)) {
        put_varint(bytes, two[0].min(MOST_REQUESTS));
        put_varint(bytes, two[1].min(MOST_TOKENS));
    }
}

fn read_gauges(reader: &mut WireReader<'_>) -> Result<WorkerGauges, WireError> {
    let mut gauges = WorkerGauges::default();
    for (at, total) in gauges.totals[..LOADS].iter_mut().enumerate() {
        *total = reader.varint(if at < 2 { MOST_REQUESTS } else { MOST_TOKENS })?;
    }
    let mask = reader.varint(u16::MAX.into())?;
    if mask != 0 {
        gauges.first_order = reader.u64()?;
    }
    for class in (0..HELD_CLASSES).filter(|class| mask >> class & 1 == 1) {
        let at = LOADS + 2 * class;
        gauges.totals[at] = reader.varint(MOST_REQUESTS)?;
        gauges.totals[at + 1] = reader.varint(MOST_TOKENS)?;
    }
    Ok(gauges)
}
