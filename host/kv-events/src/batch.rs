//! One payload: the envelope around the events.
//!
//! Layouts: `[ts, events]`, `[ts, events, dp_rank]`, longer arrays (the rest is ignored), and the map
//! `{"ts", "events", "data_parallel_rank"}` that vLLM sent for a while (`data/fixtures/wire_vectors.json`).

use rmp::Marker;
use routing::{BlockEvent, DpRank};

use crate::event::read_event;
use crate::reject::RejectedEvent;
use crate::wire::{Cursor, ReadError};

/// A decoded batch. One bad event never discards the good ones.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedBatch {
    /// When the engine made it, in milliseconds since the Unix epoch; none where it did not say.
    pub ts_ms: Option<f64>,
    /// The data-parallel rank whose cache changed; none where it did not say.
    pub dp_rank: Option<DpRank>,
    /// The changes, in order.
    pub events: Vec<BlockEvent>,
    /// What was skipped.
    pub rejected: Vec<RejectedEvent>,
}

/// Why a payload is no batch. Nothing of it can be used: without the whole envelope the rank is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The payload ends too early or is not MessagePack.
    #[error("payload is not well-formed MessagePack")]
    Malformed,
    /// Well-formed, but not a batch.
    #[error("payload is neither an array nor a map with a list of events")]
    NotABatch,
    /// The rank is neither nil nor a number from 0 to 65535.
    #[error("data-parallel rank is not a number from 0 to 65535")]
    BadRank,
}

impl From<ReadError> for DecodeError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Malformed => Self::Malformed,
            ReadError::Mismatch => Self::NotABatch,
        }
    }
}

/// Decodes one payload, the last frame of a live or replayed message.
///
/// # Errors
/// Where the envelope is unusable; a bad event within a good envelope is only [rejected](DecodedBatch::rejected).
pub fn decode_batch(payload: &[u8]) -> Result<DecodedBatch, DecodeError> {
    let mut cursor = Cursor::new(payload);
    let mut batch = DecodedBatch {
        ts_ms: None,
        dp_rank: None,
        events: Vec::new(),
        rejected: Vec::new(),
    };
    match cursor.peek()? {
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => array_envelope(&mut cursor, &mut batch)?,
        _ => map_envelope(&mut cursor, &mut batch)?,
    }
    Ok(batch)
}

fn array_envelope(cursor: &mut Cursor<'_>, batch: &mut DecodedBatch) -> Result<(), DecodeError> {
    let count = cursor.array()?;
    if count < 2 {
        return Err(DecodeError::NotABatch);
    }
    batch.ts_ms = timestamp(cursor)?;
    events(cursor, batch)?;
    if count > 2 {
        batch.dp_rank = rank(cursor)?;
    }
    for _ in 3..count {
        cursor.skip()?;
    }
    Ok(())
}

fn map_envelope(cursor: &mut Cursor<'_>, batch: &mut DecodedBatch) -> Result<(), DecodeError> {
    let mut found = false;
    for _ in 0..cursor.map()? {
        match cursor.text()? {
            "ts" => batch.ts_ms = timestamp(cursor)?,
            "events" if !found => {
                events(cursor, batch)?;
                found = true;
            }
            "data_parallel_rank" | "attn_dp_rank" | "dp_rank" => batch.dp_rank = rank(cursor)?,
            _ => cursor.skip()?,
        }
    }
    if found {
        Ok(())
    } else {
        Err(DecodeError::NotABatch)
    }
}

fn events(cursor: &mut Cursor<'_>, batch: &mut DecodedBatch) -> Result<(), DecodeError> {
    for index in 0..cursor.array()? {
        let start = *cursor;
        match read_event(cursor) {
            Ok(event) => batch.events.push(event),
            Err((kind, reason)) => {
                batch.rejected.push(RejectedEvent { index, kind, reason });
                *cursor = start;
                cursor.skip()?;
            }
        }
    }
    Ok(())
}

/// vLLM and SGLang send seconds, mostly as a float, Mooncake's store milliseconds as an integer. No clock of either
/// unit is on the wrong side of 10^11: that is the year 1973 in milliseconds and 5138 in seconds.
fn timestamp(cursor: &mut Cursor<'_>) -> Result<Option<f64>, DecodeError> {
    const MILLISECONDS_FROM: f64 = 1e11;
    let start = *cursor;
    match cursor.number() {
        Ok(number) if !number.is_finite() => Ok(None),
        Ok(number) if number < MILLISECONDS_FROM => Ok(Some(number * 1000.0)),
        Ok(number) => Ok(Some(number)),
        Err(ReadError::Mismatch) => {
            *cursor = start;
            cursor.skip()?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn rank(cursor: &mut Cursor<'_>) -> Result<Option<DpRank>, DecodeError> {
    if cursor.take_nil()? {
        return Ok(None);
    }
    match cursor.integer::<u16>() {
        Ok(rank) => Ok(Some(DpRank(rank))),
        Err(ReadError::Malformed) => Err(DecodeError::Malformed),
        Err(ReadError::Mismatch) => Err(DecodeError::BadRank),
    }
}
