//! Tokenization cache: the next turn of a conversation tokenizes only its new part.
//!
//! It has two tables. Pieces: a text is cut after added tokens ([`crate::boundary`]), and each prefix that ends at a
//! cut is a node. A node keeps its piece of text and is used only for equal text, so a hash collision costs a miss and
//! never wrong tokens. Conversations: the state after a message, by the bytes of all messages up to it
//! ([`crate::conversation`]). Lists of token ids are pieces too ([`crate::id_list`]).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::conversation::ConversationHash;
use crate::node_table::NodeTable;

/// One in so many continued conversations is compared with its whole rendering.
const CHECK_EVERY: u64 = 256;

/// Cache of all models of a router.
#[derive(Debug)]
pub struct TokenizationCache {
    pub(crate) pieces: NodeTable,
    pub(crate) conversations: NodeTable,
    pub(crate) hash: ConversationHash,
    /// Number of continued conversations.
    continued: AtomicU64,
}

/// Memory of the two tables in bytes; with 0 a table stores nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Pieces of texts.
    pub pieces: usize,
    /// States of conversations.
    pub conversations: usize,
}

impl TokenizationCache {
    /// Creates a cache of at most so many bytes, which keeps no conversations; with 0 it stores nothing.
    #[must_use]
    pub fn new(pieces: usize) -> Self {
        Self::with_conversations(CacheLimits {
            pieces,
            conversations: 0,
        })
    }

    /// Creates a cache within these limits.
    #[must_use]
    pub fn with_conversations(limits: CacheLimits) -> Self {
        Self {
            pieces: NodeTable::new(limits.pieces),
            conversations: NodeTable::new(limits.conversations),
            hash: ConversationHash::new(),
            continued: AtomicU64::new(0),
        }
    }

    /// Sets the limits, with immediate effect.
    pub fn set_limits(&self, limits: CacheLimits) {
        self.pieces.set_limit(limits.pieces);
        self.conversations.set_limit(limits.conversations);
    }

    /// Returns the memory of the pieces in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pieces.bytes()
    }

    /// Returns the memory of the conversations' states in bytes.
    #[must_use]
    pub fn conversation_bytes(&self) -> usize {
        self.conversations.bytes()
    }

    /// Counts a continued conversation. Returns `true` if it is to be compared with its whole rendering.
    pub(crate) fn samples_this(&self) -> bool {
        self.continued
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(CHECK_EVERY)
    }
}
