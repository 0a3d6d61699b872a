//! The benches' own language and its tokenizer: 2,000 words of three letters, each of which is one token with the space
//! before it.
//!
//! The tokenizer is a byte-level BPE in the form of real models (merges, a splitting pattern, ChatML), so using it
//! costs a router as much as a real one, at four bytes per token. The tokens of a text are nevertheless computable
//! without a tokenizer library, as the backends need it to announce the blocks that a router will look up.

mod bpe;
mod files;

pub use files::write_tokenizer;

/// Consonants and vowels of the words.
const CONSONANTS: &[u8; 20] = b"bcdfghjklmnpqrstvwxz";
const VOWELS: &[u8; 5] = b"aeiou";
/// Number of words.
pub const WORDS: u64 = 20 * 5 * 20;
/// A word with a space before or behind it.
pub const WORD_BYTES: usize = 4;

/// Returns a word's three letters.
#[must_use]
pub fn word(number: u64) -> [u8; 3] {
    let number = (number % WORDS) as usize;
    [
        CONSONANTS[number / 100],
        VOWELS[number / 20 % 5],
        CONSONANTS[number % 20],
    ]
}

/// Words without end, by seed.
#[derive(Debug, Clone, Copy)]
pub struct Words(u64);

impl Words {
    /// Returns the language of a seed. Equal seeds give equal words.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next words with single spaces between them, so many bytes long. The last word takes the rest, with
    /// letters of its own.
    pub fn text(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes);
        while text.len() + WORD_BYTES <= bytes {
            self.0 = self
                .0
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            text.extend(word(self.0 >> 33).map(char::from));
            text.push(' ');
        }
        // Instead of the space behind the last word.
        text.pop();
        text.extend(std::iter::repeat_n('a', bytes - text.len()));
        text
    }
}

/// A message of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Role in the conversation.
    pub role: &'static str,
    /// Words and single spaces.
    pub content: String,
}

/// Returns the first tokens of a chat as the template renders it: of all messages, the last of which may go on behind
/// its content.
#[must_use]
pub fn beginning(messages: &[Message]) -> Vec<u32> {
    let mut tokens = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        tokens.push(bpe::MESSAGE_START);
        bpe::encode_word(message.role, &mut tokens);
        bpe::encode_word("\n", &mut tokens);
        for (index, word) in message.content.split(' ').enumerate() {
            if index == 0 {
                bpe::encode_word(word, &mut tokens);
            } else {
                bpe::encode_word(&format!(" {word}"), &mut tokens);
            }
        }
        if index + 1 < messages.len() {
            tokens.push(bpe::MESSAGE_END);
            bpe::encode_word("\n", &mut tokens);
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words_are_all_different() {
        let words: HashSet<_> = (0..WORDS).map(word).collect();
        assert_eq!(words.len() as u64, WORDS);
    }

    #[test]
    fn a_word_is_one_token_wherever_it_stands() {
        let content: String = (0..50)
            .map(|number| String::from_utf8_lossy(&word(number * 37)).into_owned() + " ")
            .collect();
        let message = Message {
            role: "user",
            content: content.trim_end().to_owned(),
        };
        // The start, "u", "ser", the line's end, and the words.
        assert_eq!(beginning(&[message]).len(), 4 + 50);
    }

    #[test]
    fn a_beginning_goes_on_where_the_next_message_starts() {
        let message = |role, content: &str| Message {
            role,
            content: content.to_owned(),
        };
        let first = beginning(&[message("user", "bak fol")]);
        let both = beginning(&[message("user", "bak fol"), message("assistant", "mis")]);
        assert_eq!(both[..first.len()], first);
        assert_eq!(both[first.len()], bpe::MESSAGE_END);
        assert_eq!(both[first.len() + 2], bpe::MESSAGE_START);
    }
}
