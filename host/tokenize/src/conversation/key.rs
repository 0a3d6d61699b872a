//! Keys of conversations: a chain of hashes over the raw bytes of the messages.
//!
//! 128 bits under a random secret of the process. Texts are not compared: an accidental collision is out of reach, and
//! no client sees a hash that would help to prepare one. ADR 0038 has the reason.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_128_with_secret;

use crate::chat::Chat;

/// Length of the secret in bytes.
const SECRET: usize = 192;

/// Hash function of the keys.
pub(crate) struct ConversationHash {
    secret: [u8; SECRET],
}

impl fmt::Debug for ConversationHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversationHash").finish_non_exhaustive()
    }
}

/// Key of a chat before its first message: everything else that affects its rendering.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChatHead {
    pub(crate) model: u64,
    /// Day of the rendering, for templates that print it.
    pub(crate) day: u64,
}

impl ConversationHash {
    pub(crate) fn new() -> Self {
        let random = RandomState::new();
        let mut secret = [0; SECRET];
        for (at, part) in secret.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&random.hash_one(at).to_le_bytes());
        }
        Self { secret }
    }

    fn hash(&self, bytes: &[u8]) -> u128 {
        xxh3_128_with_secret(bytes, &self.secret)
    }

    /// Returns the key after `before` and one more part.
    fn after(&self, before: u128, part: &str) -> u128 {
        let mut both = [0; 40];
        both[..16].copy_from_slice(&before.to_le_bytes());
        both[16..32].copy_from_slice(&self.hash(part.as_bytes()).to_le_bytes());
        both[32..].copy_from_slice(&(part.len() as u64).to_le_bytes());
        self.hash(&both)
    }

    /// Returns the keys after each message.
    pub(crate) fn keys(&self, head: ChatHead, chat: &Chat<'_>, messages: &[Range<usize>]) -> Vec<u128> {
        let mut key = u128::from(head.model) << 64 | u128::from(head.day);
        for field in [chat.tools, chat.chat_template_kwargs, chat.reasoning_effort] {
            // No JSON is empty.
            key = self.after(key, field.unwrap_or_default());
        }
        let after = |message: &Range<usize>| {
            key = self.after(key, chat.messages.get(message.clone()).unwrap_or_default());
            key
        };
        messages.iter().map(after).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(hash: &ConversationHash, model: u64, tools: Option<&str>, messages: &[&str]) -> Vec<u128> {
        let text = messages.concat();
        let mut at = 0;
        let positions: Vec<_> = messages
            .iter()
            .map(|message| {
                at += message.len();
                at - message.len()..at
            })
            .collect();
        let chat = Chat {
            messages: &text,
            tools,
            ..Chat::default()
        };
        hash.keys(ChatHead { model, day: 0 }, &chat, &positions)
    }

    #[test]
    fn a_key_stands_for_all_messages_and_everything_before_them() {
        let hash = ConversationHash::new();
        let all = keys(&hash, 1, None, &["{a}", "{b}", "{c}"]);
        assert_eq!(all[..2], keys(&hash, 1, None, &["{a}", "{b}"])[..]);
        for other in [
            keys(&hash, 1, None, &["{a}{b}", "{c}"]),
            keys(&hash, 1, None, &["{a", "}{b}", "{c}"]),
            keys(&hash, 2, None, &["{a}", "{b}", "{c}"]),
            keys(&hash, 1, Some("[]"), &["{a}", "{b}", "{c}"]),
            keys(&ConversationHash::new(), 1, None, &["{a}", "{b}", "{c}"]),
        ] {
            assert!(all.iter().all(|key| !other[1..].contains(key)));
        }
    }
}
