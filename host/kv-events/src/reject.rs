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

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident = $label:literal, $message:literal;)+) => {
        /// Why an event was rejected. A closed set, so that each can be a metric's label.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum RejectReason {
            $($(#[doc = $doc])+ #[error($message)] $reason,)+
        }

        impl RejectReason {
            /// Every reason, in the order of their numbers (`reason as usize`).
            pub const ALL: &[Self] = &[$(Self::$reason,)+];

            /// The reason in a metric's label.
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
    /// Another field has a value of the wrong kind, or contradicts its fellow.
    BadField = "bad-field", "field has a value of the wrong kind";
    /// Not an integer of 64 bits, not hexadecimal text of at least 16 digits and not at least 8 bytes.
    BadHash = "bad-hash", "block hash is neither an integer nor at least 8 bytes";
    /// Not an unsigned 32-bit number.
    BadToken = "bad-token", "token id is not an unsigned 32-bit number";
    /// Token ids in pairs, as SGLang publishes them where speculative decoding keys its cache by bigrams. The last pair
    /// of a page names the token after it, so the page fits one continuation only: taking the pairs' first halves for
    /// the page's tokens would claim a page too many wherever a prompt goes on otherwise.
    BigramTokens = "bigram-tokens", "token ids are bigram pairs";
    /// No token ids, so its content is unknown: offloading connectors (vLLM's placeholder has a block size of 0 too).
    NoTokens = "no-tokens", "event carries no token ids";
    /// Fewer hashes than the token ids make blocks, and no store of the same batch tells which they are; see `sparse.rs`.
    SkippedBlocks = "skipped-blocks", "event has token ids of blocks it leaves out";
    /// `token_ids` is not `block_hashes` times `block_size` long.
    TokenCount = "token-count", "number of token ids is not blocks times block size";
    /// A block size of 0 or not a number.
    BadBlockSize = "bad-block-size", "block size is not a positive number";
    /// A medium this decoder cannot put on a tier.
    UnknownMedium = "unknown-medium", "medium is unknown";
    /// Extra keys that are not one list a block, or hold something other than text, numbers and bytes.
    BadExtraKeys = "bad-extra-keys", "extra keys are not one list of scalars a block";
    /// A store's event among an engine's: `decode_objects` reads these.
    StorePool = "store-pool", "event is a store's and not an engine's";
    /// An engine's event among a store's: `decode_batch` reads these.
    EngineEvent = "engine-event", "event is an engine's and not a store's";
    /// An object under a key of no known grammar: written by something else than an engine's cache.
    UnknownObjectKey = "unknown-object-key", "object key follows no known grammar";
    /// An object key whose hash or rank cannot be one.
    BadObjectKey = "bad-object-key", "object key has a hash or a rank that cannot be one";
    /// An object beside a block's keys and values (a draft model's, an indexer's, a state): it is not followed.
    SidecarObject = "sidecar-object", "object is no part of a block's keys and values";
}

/// Rejected events of a batch whose places are kept; further ones are only counted.
const SAMPLES: usize = 32;

/// The events of a batch that were skipped: counted by reason, the first ones kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejections {
    samples: Vec<RejectedEvent>,
    counts: [usize; RejectReason::ALL.len()],
    hides_removal: bool,
}

impl Rejections {
    /// The first rejected events, by their places.
    #[must_use]
    pub fn samples(&self) -> &[RejectedEvent] {
        &self.samples
    }

    /// How many events were rejected.
    #[must_use]
    pub fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Each reason that was met, with its events.
    pub fn by_reason(&self) -> impl Iterator<Item = (RejectReason, usize)> {
        let reasons = RejectReason::ALL.iter().copied().zip(self.counts);
        reasons.filter(|&(_, events)| events > 0)
    }

    /// Whether any of them [hides a removal](RejectedEvent::hides_removal).
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

    /// Puts the kept ones into the order of the batch.
    pub(crate) fn sort(&mut self) {
        self.samples.sort_by_key(|rejected| rejected.index);
    }
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
    /// Whether blocks or objects may be gone that this event would have told of. What is rejected for its kind of
    /// content is rejected when it is stored too, so nothing that was indexed can be meant.
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
