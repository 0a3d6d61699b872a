//! Rejected events and their reasons.

/// Kind of a rejected event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Blocks stored: rejecting it only costs hits.
    Stored,
    /// Blocks removed: rejecting it leaves removed blocks in the index.
    Removed,
    /// Cache cleared; like a removal.
    Cleared,
    /// An unknown type, or none.
    Unknown,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident = $label:literal, $message:literal;)+) => {
        /// Reason why an event was rejected. The set is closed, so reasons can be metrics labels.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum RejectReason {
            $($(#[doc = $doc])+ #[error($message)] $reason,)+
        }

        impl RejectReason {
            /// Every reason, in the order of their numbers (`reason as usize`).
            pub const ALL: &[Self] = &[$(Self::$reason,)+];

            /// Returns the reason as a metrics label.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$reason => $label,)+
                }
            }
        }
    };
}

reasons! {
    /// Neither an array nor a map, or without a type.
    NotAnEvent = "not-an-event", "event is neither a tagged array nor a map with a `type`";
    /// A type that changes no block, or not yet known.
    UnknownType = "unknown-type", "event is of an unknown type";
    /// A required field is absent or nil.
    MissingField = "missing-field", "event lacks a required field";
    /// Another field has a value of the wrong kind, or contradicts another one.
    BadField = "bad-field", "field has a value of the wrong kind";
    /// Not an integer of 64 bits, not hexadecimal text of at least 16 digits and not at least 8 bytes.
    BadHash = "bad-hash", "block hash is neither an integer nor at least 8 bytes";
    /// Not an unsigned 32-bit number.
    BadToken = "bad-token", "token id is not an unsigned 32-bit number";
    /// Pairs of token ids, as SGLang publishes them if speculative decoding keys its cache by bigrams. The last pair
    /// of a page contains the next token, so the page fits one continuation only. Using the first halves as the page's
    /// tokens would report a page too many for other continuations.
    BigramTokens = "bigram-tokens", "token ids are bigram pairs";
    /// No token ids, so its content is unknown: offloading connectors (vLLM's placeholder has a block size of 0 too).
    NoTokens = "no-tokens", "event carries no token ids";
    /// Fewer hashes than the token ids have blocks, and no store of the same batch identifies them; see `sparse.rs`.
    SkippedBlocks = "skipped-blocks", "event has token ids of blocks it leaves out";
    /// The length of `token_ids` is not `block_hashes` times `block_size`.
    TokenCount = "token-count", "number of token ids is not blocks times block size";
    /// A block size of 0 or not a number.
    BadBlockSize = "bad-block-size", "block size is not a positive number";
    /// A medium without a known tier.
    UnknownMedium = "unknown-medium", "medium is unknown";
    /// Extra keys are not one list per block, or contain other values than text, numbers and bytes.
    BadExtraKeys = "bad-extra-keys", "extra keys are not one list of scalars a block";
    /// A store's event in an engine's batch: `decode_objects` reads these.
    StorePool = "store-pool", "event is a store's and not an engine's";
    /// An engine's event in a store's batch: `decode_batch` reads these.
    EngineEvent = "engine-event", "event is an engine's and not a store's";
    /// The key of an object has no known grammar: it was not written by an engine's cache.
    UnknownObjectKey = "unknown-object-key", "object key follows no known grammar";
    /// An object key with an impossible hash or rank.
    BadObjectKey = "bad-object-key", "object key has a hash or a rank that cannot be one";
    /// An object beside a block's keys and values (a draft model's, an indexer's, a state). Such objects are not
    /// followed.
    SidecarObject = "sidecar-object", "object is no part of a block's keys and values";
}

/// Kind of a skipped event, and the reason.
pub(crate) type EventRejection = (EventKind, RejectReason);

/// Most rejected events kept with their positions. Further ones are only counted.
const SAMPLES: usize = 32;

/// Rejected events of a batch: counted by reason, and the first ones in detail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RejectedEvents {
    samples: Vec<RejectedEvent>,
    counts: [usize; RejectReason::ALL.len()],
    hides_removal: bool,
}

impl RejectedEvents {
    /// Returns the first rejected events.
    #[must_use]
    pub fn samples(&self) -> &[RejectedEvent] {
        &self.samples
    }

    /// Returns the number of rejected events.
    #[must_use]
    pub fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Returns each reason that occurred, with its count.
    pub fn by_reason(&self) -> impl Iterator<Item = (RejectReason, usize)> {
        let reasons = RejectReason::ALL.iter().copied().zip(self.counts);
        reasons.filter(|&(_, events)| events > 0)
    }

    /// Returns `true` if any of them [hides a removal](RejectedEvent::hides_removal).
    #[must_use]
    pub fn hides_removal(&self) -> bool {
        self.hides_removal
    }

    pub(crate) fn push(&mut self, rejected: RejectedEvent) {
        self.counts[rejected.reason as usize] += 1;
        self.hides_removal |= rejected.hides_removal();
        if self.samples.len() < SAMPLES {
            self.samples.push(rejected);
        }
    }

    /// Sorts the kept events into the order of the batch.
    pub(crate) fn sort(&mut self) {
        self.samples.sort_by_key(|rejected| rejected.index);
    }
}

/// A rejected event. The batch's other events are not affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectedEvent {
    /// Position in the batch, from 0.
    pub index: usize,
    /// Kind of the event.
    pub kind: EventKind,
    /// Reason of the rejection.
    pub reason: RejectReason,
}

impl RejectedEvent {
    /// Returns `true` if the event may have reported the removal of blocks or objects. Content that is rejected on
    /// removal is also rejected when stored, so it was never indexed.
    #[must_use]
    pub fn hides_removal(&self) -> bool {
        let never_indexed = matches!(
            self.reason,
            RejectReason::StorePool
                | RejectReason::EngineEvent
                | RejectReason::UnknownMedium
                | RejectReason::UnknownObjectKey
                | RejectReason::BadObjectKey
                | RejectReason::SidecarObject
        );
        matches!(self.kind, EventKind::Removed | EventKind::Cleared) && !never_indexed
    }
}
