//! Events that were skipped, and why.

/// What a rejected event would have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Blocks stored: rejecting it can only cost hits.
    Stored,
    /// Blocks removed: rejecting it leaves blocks claimed that are gone.
    Removed,
    /// The cache was emptied; like a removal.
    Cleared,
    /// A type this decoder does not know, or none at all.
    Unknown,
}

/// Why an event was rejected. A closed set, so that each can be a metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RejectReason {
    /// Neither an array nor a map, or without a type.
    #[error("event is neither a tagged array nor a map with a `type`")]
    NotAnEvent,
    /// A type that changes no block, or not yet known.
    #[error("event is of an unknown type")]
    UnknownType,
    /// A required field is absent or nil.
    #[error("event lacks `block_hashes` or `block_size`")]
    MissingField,
    /// Not an integer and not a byte string of at least 8 bytes.
    #[error("block hash is neither an integer nor at least 8 bytes")]
    BadHash,
    /// Not an unsigned 32-bit number.
    #[error("token id is not an unsigned 32-bit number")]
    BadToken,
    /// Token ids in pairs, as speculative decoding with bigram keys publishes them: not indexed for now.
    #[error("token ids are bigram pairs")]
    BigramTokens,
    /// No token ids, so its content is unknown: not indexed for now.
    #[error("event carries no token ids")]
    NoTokens,
    /// `token_ids` is not `block_hashes` times `block_size` long.
    #[error("number of token ids is not blocks times block size")]
    TokenCount,
    /// A block size of 0 or not a number.
    #[error("block size is not a positive number")]
    BadBlockSize,
    /// A medium this decoder cannot put on a tier.
    #[error("medium is unknown")]
    UnknownMedium,
    /// Extra keys that are not one list a block, or hold something other than text, numbers and bytes.
    #[error("extra keys are not one list of scalars a block")]
    BadExtraKeys,
    /// A Mooncake store's event, which names objects and not tokens: not indexed for now.
    #[error("event is a Mooncake store's")]
    StorePool,
    /// Another field has a value of the wrong kind.
    #[error("field has a value of the wrong kind")]
    BadField,
}

/// One event that was skipped; its batch's other events are not affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectedEvent {
    /// Its place in the batch, from 0.
    pub index: usize,
    /// What it would have been.
    pub kind: EventKind,
    /// Why it was skipped.
    pub reason: RejectReason,
}

impl RejectedEvent {
    /// Whether blocks may be gone that this event would have told of. A store pool's removals do not count: its
    /// blocks were never indexed.
    #[must_use]
    pub fn hides_removal(&self) -> bool {
        matches!(self.kind, EventKind::Removed | EventKind::Cleared) && self.reason != RejectReason::StorePool
    }
}
