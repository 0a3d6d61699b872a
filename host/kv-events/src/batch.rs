//! Batch decoder: the envelope around events, the same for engines and stores.
//!
//! Layouts: `[ts, events]`, `[ts, events, dp_rank]`, longer arrays (further elements are ignored), and the map `{"ts",
//! "events", "data_parallel_rank"}` of some vLLM versions (`data/fixtures/wire_vectors.json`).

use rmp::Marker;
use routing::DpRank;

use crate::event::{ReadEvent, read_event};
use crate::object::read_object_event;
use crate::payload::{DecodedBatch, DecodedObjects, DecodedPayload};
use crate::reject::{EventRejection, RejectedEvent, RejectedEvents};
use crate::sparse::{SparseStore, settle};
use crate::wire::{PayloadCursor, ReadError};

/// Error of the envelope. The whole payload is unusable, because the rank is unknown.
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
    /// Bytes follow the batch, and may contain events. No publisher sends any.
    #[error("payload goes on after its batch")]
    TrailingBytes,
}

impl From<ReadError> for DecodeError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Malformed => Self::Malformed,
            ReadError::Mismatch => Self::NotABatch,
        }
    }
}

/// Decodes a payload of an engine: the last frame of a live or replayed message.
///
/// # Errors
/// Returns an error if the envelope is unusable. A bad event in a good envelope is [rejected](Decoded::rejected)
/// instead.
pub fn decode_batch(payload: &[u8]) -> Result<DecodedBatch, DecodeError> {
    let mut sparse = Vec::new();
    let mut batch = decode(payload, |cursor, index, events| {
        match read_event(cursor)? {
            ReadEvent::Whole(event) => events.push(event),
            ReadEvent::Sparse(stored) => sparse.push(SparseStore {
                index,
                place: events.len(),
                stored,
            }),
        }
        Ok(())
    })?;
    settle(&mut batch, sparse);
    Ok(batch)
}

/// Decodes a payload of a store's publisher (Mooncake RFC 1527): the last frame of a live message.
///
/// # Errors
/// Returns an error if the envelope is unusable. A bad event in a good envelope is [rejected](Decoded::rejected)
/// instead.
pub fn decode_objects(payload: &[u8]) -> Result<DecodedObjects, DecodeError> {
    decode(payload, |cursor, _, events| read_object_event(cursor, events))
}

fn decode<E>(
    payload: &[u8],
    read: impl FnMut(&mut PayloadCursor<'_>, usize, &mut Vec<E>) -> Result<(), EventRejection>,
) -> Result<DecodedPayload<E>, DecodeError> {
    let mut cursor = PayloadCursor::new(payload);
    let mut batch = DecodedPayload {
        ts_ms: None,
        dp_rank: None,
        events: Vec::new(),
        rejected: RejectedEvents::default(),
    };
    match cursor.peek()? {
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
            array_envelope(&mut cursor, &mut batch, read)?;
        }
        _ => map_envelope(&mut cursor, &mut batch, read)?,
    }
    if cursor.is_empty() {
        Ok(batch)
    } else {
        Err(DecodeError::TrailingBytes)
    }
}

fn array_envelope<E>(
    cursor: &mut PayloadCursor<'_>,
    batch: &mut DecodedPayload<E>,
    read: impl FnMut(&mut PayloadCursor<'_>, usize, &mut Vec<E>) -> Result<(), EventRejection>,
) -> Result<(), DecodeError> {
    let count = cursor.array()?;
    if count < 2 {
        return Err(DecodeError::NotABatch);
    }
    batch.ts_ms = timestamp(cursor)?;
    events(cursor, batch, read)?;
    if count > 2 {
        batch.dp_rank = rank(cursor)?;
    }
    for _ in 3..count {
        cursor.skip()?;
    }
    Ok(())
}

fn map_envelope<E>(
    cursor: &mut PayloadCursor<'_>,
    batch: &mut DecodedPayload<E>,
    mut read: impl FnMut(&mut PayloadCursor<'_>, usize, &mut Vec<E>) -> Result<(), EventRejection>,
) -> Result<(), DecodeError> {
    let mut found = false;
    for _ in 0..cursor.map()? {
        match cursor.key()? {
            Some("ts") => batch.ts_ms = timestamp(cursor)?,
            Some("events") if !found => {
                events(cursor, batch, &mut read)?;
                found = true;
            }
            Some("data_parallel_rank" | "attn_dp_rank" | "dp_rank") => batch.dp_rank = rank(cursor)?,
            // A second list of events is ambiguous, so the batch is refused.
            Some("events") => return Err(DecodeError::NotABatch),
            _ => cursor.skip()?,
        }
    }
    if found {
        Ok(())
    } else {
        Err(DecodeError::NotABatch)
    }
}

fn events<E>(
    cursor: &mut PayloadCursor<'_>,
    batch: &mut DecodedPayload<E>,
    mut read: impl FnMut(&mut PayloadCursor<'_>, usize, &mut Vec<E>) -> Result<(), EventRejection>,
) -> Result<(), DecodeError> {
    for index in 0..cursor.array()? {
        let start = *cursor;
        if let Err((kind, reason)) = read(cursor, index, &mut batch.events) {
            batch.rejected.push(RejectedEvent { index, kind, reason });
            *cursor = start;
            cursor.skip()?;
        }
    }
    Ok(())
}

/// Reads a timestamp. vLLM and SGLang send seconds, mostly as a float, Mooncake's store milliseconds as an integer.
/// 10^11 separates the units: it is the year 1973 in milliseconds and 5138 in seconds. A time before the epoch is
/// invalid.
fn timestamp(cursor: &mut PayloadCursor<'_>) -> Result<Option<f64>, DecodeError> {
    const MILLISECONDS_FROM: f64 = 1e11;
    let start = *cursor;
    match cursor.number() {
        Ok(number) if !number.is_finite() || number < 0.0 => Ok(None),
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

fn rank(cursor: &mut PayloadCursor<'_>) -> Result<Option<DpRank>, DecodeError> {
    if cursor.take_nil()? {
        return Ok(None);
    }
    match cursor.integer::<u16>() {
        Ok(rank) => Ok(Some(DpRank(rank))),
        Err(ReadError::Malformed) => Err(DecodeError::Malformed),
        Err(ReadError::Mismatch) => Err(DecodeError::BadRank),
    }
}
