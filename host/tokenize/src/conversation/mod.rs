//! Conversations recognized by their messages.
//!
//! A turn of a conversation repeats all earlier messages. The state after a message has the tokens up to there, and is
//! found by the raw bytes of the messages (`key.rs`). Only the messages after it are rendered, behind a short context
//! that stands for the known ones (`frame.rs`), and only their text is tokenized.
//!
//! That is valid if the rendering of a message does not depend on messages far from it. Probes decide it when a model
//! is loaded (`probe.rs`). A sample of the continued conversations is rendered whole and compared
//! ([`Model::check_chat`](crate::Model::check_chat)): a difference ends it for the template. ADR 0038 has the reasons
//! (`host/adr/0038-conversation-chain.md`).

mod check;
mod frame;
mod frame_key;
mod frame_table;
mod key;
mod literals;
mod probe;
mod turn;

pub(crate) use frame::Frames;
pub(crate) use key::ConversationHash;
pub(crate) use literals::{literals, pairs};
pub(crate) use turn::{ConversationStart, Mark, Marks, NewState};

/// Kind of the message before which a conversation is continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastMessage {
    /// The leading system or developer message.
    Lead,
    User,
    /// The result of a tool.
    Tool,
}

/// End of the text of a conversation's state: an added token or a seam after which the tokens are independent, and the
/// text after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateEnd {
    /// Number of the frame that continues it.
    pub(crate) frame: u32,
    pub(crate) last: LastMessage,
    /// Id of the added token; `None` where the text begins at a seam between words.
    pub(crate) id: Option<u32>,
    /// Length of the added token in bytes.
    pub(crate) token_bytes: u32,
    /// Length of the rendering up to the added token, in bytes.
    pub(crate) rendered: u32,
}
