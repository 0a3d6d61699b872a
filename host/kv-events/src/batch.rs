//! One payload: the envelope around the events, the same for engines and for a store.
//!
//! Layouts: `[ts, events]`, `[ts, events, dp_rank]`, longer arrays (the rest is ignored), and the map
//! `{"ts", "events", "data_parallel_rank"}` that vLLM sent for a while (`data/fixtures/wire_vectors.json`).

use rmp::Marker;
use routing::{BlockEvent, DpRank, ObjectEvent};

use crate::event::{Read, read_event};
use crate::object::read_object_event;
use crate::reject::{EventKind, RejectReason, RejectedEvent, Rejections};
use crate::sparse::{SparseStore, settle};
use crate::wire::{Cursor, ReadError};

/// A decoded batch. One bad event never discards the good ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded<E> {
    /// When the publisher made it, in milliseconds since the Unix epoch; none where it did not say.
    pub ts_ms: Option<f64>,
    /// The data-parallel rank whose cache changed; none where it did not say.
    pub dp_rank: Option<DpRank>,
    /// The changes, in order.
    pub events: Vec<E>,
    /// What was skipped.
    pub rejected: Rejections,
}

/// What an engine says of its blocks.
pub type DecodedBatch = Decoded<BlockEvent>;

/// What a store says of its objects. The rank is the publisher's setting and means nothing to an object.
pub type DecodedObjects = Decoded<ObjectEvent>;

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
    /// A batch, and then more bytes, which no publisher sends: events may be in them.
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

/// Decodes one payload of an engine, the last frame of a live or replayed message.
///
/// # Errors
/// Where the envelope is unusable; a bad event within a good envelope is only [rejected](Decoded::rejected).
pub fn decode_batch(payload: &[u8]) -> Result<DecodedBatch, DecodeError> {
    let mut sparse = Vec::new();
    let mut batch = decode(payload, |cursor, index, events| {
        match read_event(cursor)? {
            Read::Whole(event) => events.push(event),
            Read::Sparse(stored) => sparse.push(SparseStore {
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

/// Decodes one payload of a store's publisher (Mooncake RFC 1527), the last frame of a live message.
///
/// # Errors
/// Where the envelope is unusable; a bad event within a good envelope is only [rejected](Decoded::rejected).
pub fn decode_objects(payload: &[u8]) -> Result<DecodedObjects, DecodeError> {
    decode(payload, |cursor, _, events| read_object_event(cursor, events))
}

/// Why an event was skipped, and what it would have been.
pub(crate) type Rejection = (EventKind, RejectReason);

fn decode<E>(
    payload: &[u8],
    read: impl FnMut(&mut Cursor<'_>, usize, &mut Vec<E>) -> Result<(), Rejection>,
) -> Result<Decoded<E>, DecodeError> {
    let mut cursor = Cursor::new(payload);
    let mut batch = Decoded {
        ts_ms: None,
        dp_rank: None,
        events: Vec::new(),
        rejected: Rejections::default(),
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
    cursor: &mut Cursor<'_>,
    batch: &mut Decoded<E>,
    read: impl FnMut(&mut Cursor<'_>, usize, &mut Vec<E>) -> Result<(), Rejection>,
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
    cursor: &mut Cursor<'_>,
    batch: &mut Decoded<E>,
    mut read: impl FnMut(&mut Cursor<'_>, usize, &mut Vec<E>) -> Result<(), Rejection>,
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
            // A second list of events would be as good as the first: such a batch is not understood.
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
    cursor: &mut Cursor<'_>,
    batch: &mut Decoded<E>,
    mut read: impl FnMut(&mut Cursor<'_>, usize, &mut Vec<E>) -> Result<(), Rejection>,
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

/// vLLM and SGLang send seconds, mostly as a float, Mooncake's store milliseconds as an integer. No clock of either
/// unit is on the wrong side of 10^11: that is the year 1973 in milliseconds and 5138 in seconds. A time before the epoch
/// is no clock's.
fn timestamp(cursor: &mut Cursor<'_>) -> Result<Option<f64>, DecodeError> {
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
