//! Decoded payloads: the events of a batch, and those that were skipped.

use routing::{BlockEvent, DpRank, ObjectEvent};

use crate::reject::RejectedEvents;

/// A decoded batch. A bad event never discards the good ones.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedPayload<E> {
    /// Creation time in milliseconds since the Unix epoch, if sent.
    pub ts_ms: Option<f64>,
    /// Data-parallel rank of the changed cache, if sent.
    pub dp_rank: Option<DpRank>,
    /// The changes, in order.
    pub events: Vec<E>,
    /// Skipped events.
    pub rejected: RejectedEvents,
}

/// Batch of an engine's block events.
pub type DecodedBatch = DecodedPayload<BlockEvent>;

/// Batch of a store's object events. Its rank is a setting of the publisher without meaning for objects.
pub type DecodedObjects = DecodedPayload<ObjectEvent>;
