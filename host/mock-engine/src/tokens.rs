//! Mock tokenizer and chat template: text in, stable token ids out. They belong to no real model, but have the
//! properties that a router depends on. Equal text gives equal ids, and an answer's text gives the generated ids, so a
//! conversation's next turn finds its history in the cache.

use xxhash_rust::xxh3::xxh3_64;

/// Number of token ids.
pub(crate) const VOCABULARY: u32 = 32_000;
/// Lower ids are special tokens.
pub(crate) const FIRST_WORD: u32 = 16;
/// Longest word piece in bytes, without its leading space. Longer words are split.
pub(crate) const MAX_PIECE: usize = 8;

const TURN_START: &str = "<|im_start|>";
const TURN_END: &str = "<|im_end|>";

/// Part of a prompt. Tokens never span two segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    /// A token of the template that no text can spell.
    Special(&'static str),
    /// Text to be tokenized.
    Text(String),
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Role of the speaker.
    pub(crate) role: String,
    /// Content.
    pub(crate) content: String,
}

/// End of a conversation in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The start of the assistant's turn: the usual end.
    AssistantTurn,
    /// The last message, closed.
    Closed,
    /// The last message, open.
    OpenMessage,
}

/// Returns the token ids of a text, as in `/tokenize` and a `prompt`: runs of up to eight ASCII letters and digits
/// with at most one space before them; any other character alone.
#[must_use]
pub fn tokenize(text: &str) -> Vec<u32> {
    WordPieces(text).map(token_id).collect()
}

/// Returns the id of one piece of text.
pub(crate) fn token_id(piece: &str) -> u32 {
    let slot = xxh3_64(piece.as_bytes()) % u64::from(VOCABULARY - FIRST_WORD);
    FIRST_WORD + u32::try_from(slot).expect("a remainder of a 32-bit number fits")
}

/// Returns a conversation as segments.
pub(crate) fn chat_segments(messages: &[Message], ending: Ending) -> Vec<Segment> {
    let mut segments = Vec::with_capacity(messages.len() * 5 + 2);
    for message in messages {
        segments.push(Segment::Special(TURN_START));
        segments.push(Segment::Text(format!("{}\n", message.role)));
        segments.push(Segment::Text(message.content.clone()));
        segments.push(Segment::Special(TURN_END));
        segments.push(Segment::Text("\n".to_owned()));
    }
    match ending {
        Ending::AssistantTurn => {
            segments.push(Segment::Special(TURN_START));
            segments.push(Segment::Text("assistant\n".to_owned()));
        }
        Ending::Closed => {}
        Ending::OpenMessage => segments.truncate(segments.len().saturating_sub(2)),
    }
    segments
}

/// Returns every token of the segments with its text.
pub(crate) fn segment_tokens(segments: &[Segment]) -> impl Iterator<Item = (u32, &str)> {
    segments.iter().flat_map(|segment| {
        let (special, text) = match segment {
            Segment::Special(name) => (Some((special_id(name), *name)), ""),
            Segment::Text(text) => (None, text.as_str()),
        };
        special
            .into_iter()
            .chain(WordPieces(text).map(|piece| (token_id(piece), piece)))
    })
}

fn special_id(name: &str) -> u32 {
    u32::from(name == TURN_END)
}

/// Returns the name of a special token of the template.
pub(crate) fn special_name(id: u32) -> Option<&'static str> {
    [TURN_START, TURN_END].get(id as usize).copied()
}

/// Splits a text from the left.
struct WordPieces<'a>(&'a str);

impl<'a> Iterator for WordPieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let first = self.0.chars().next()?;
        let space = usize::from(first == ' ');
        let word = self.0.as_bytes()[space..]
            .iter()
            .take(MAX_PIECE)
            .take_while(|byte| byte.is_ascii_alphanumeric())
            .count();
        let length = if word > 0 { space + word } else { first.len_utf8() };
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, pieces: &[&str]) {
        assert_eq!(WordPieces(text).collect::<Vec<_>>(), pieces);
    }

    #[test]
    fn text_splits_into_words_with_their_space() {
        check("", &[]);
        check("hello world", &["hello", " world"]);
        check("a  b\n c", &["a", " ", " b", "\n", " c"]);
        check("incomprehensible!", &["incompre", "hensible", "!"]);
        check(" é1", &[" ", "é", "1"]);
    }

    #[test]
    fn ids_are_stable_and_never_special() {
        assert_eq!(tokenize("hello world"), tokenize("hello world"));
        assert_ne!(tokenize("hello"), tokenize(" hello"));
        let text = (0..2000).map(|n| format!(" w{n}")).collect::<String>();
        assert!(
            tokenize(&text)
                .iter()
                .all(|id| (FIRST_WORD..VOCABULARY).contains(id))
        );
    }

    #[test]
    fn the_next_turn_starts_with_the_last_prompt_and_its_answer() {
        let user = |content: &str| Message {
            role: "user".into(),
            content: content.into(),
        };
        let assistant = Message {
            role: "assistant".into(),
            content: " kato miru".into(),
        };
        let ids = |messages: &[Message], ending| {
            segment_tokens(&chat_segments(messages, ending))
                .map(|(id, _)| id)
                .collect::<Vec<_>>()
        };
        let mut first = ids(&[user("hi")], Ending::AssistantTurn);
        first.extend(tokenize(" kato miru"));
        let second = ids(
            &[user("hi"), assistant.clone(), user("and?")],
            Ending::AssistantTurn,
        );
        assert!(second.starts_with(&first));
        assert_eq!(ids(&[user("hi"), assistant], Ending::OpenMessage), first);
    }
}
