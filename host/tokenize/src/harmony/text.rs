//! Text in Harmony: markers, which are special tokens, and texts, in which nothing is one.

use tokenizers::Tokenizer;

use crate::boundary::BoundaryFinder;
use crate::chat::{Chat, ChatError};
use crate::fast_path::FastPath;
use crate::rendered::{Literals, Rendered};
use crate::value::LONGEST_TEXT;

/// Bytes that a brief rendering copies or scans at most: a few milliseconds.
const BRIEF_WORK: usize = 16 << 20;
/// Bytes that a rendering copies or scans at most.
const MOST_WORK: usize = 256 << 20;
/// Bytes that the format usually adds to the messages and the tools at most.
const ADDED_TEXT: usize = 1024;

/// Special token of the format.
#[derive(Debug, Clone, Copy)]
pub(super) enum Marker {
    Start,
    Channel,
    Message,
    End,
    Call,
}

impl Marker {
    const ALL: [Self; 5] = [Self::Start, Self::Channel, Self::Message, Self::End, Self::Call];

    fn as_str(self) -> &'static str {
        match self {
            Self::Start => "<|start|>",
            Self::Channel => "<|channel|>",
            Self::Message => "<|message|>",
            Self::End => "<|end|>",
            Self::Call => "<|call|>",
        }
    }
}

/// See [`super::is_possible`].
pub(super) fn is_possible(tokenizer: &Tokenizer, boundaries: &BoundaryFinder) -> bool {
    let has = |marker: Marker| {
        let text = marker.as_str();
        let mut found = boundaries.find(text);
        found
            .next()
            .is_some_and(|at| (at.start, at.end) == (0, text.len()))
    };
    let added = tokenizer.get_added_tokens_decoder();
    let stays_apart = |text: &str| {
        // Each marker begins with this letter, and follows every text.
        let ends = !text.chars().skip(1).any(|c| c == '<');
        ends && Marker::ALL.into_iter().all(|marker| {
            let rest = text.strip_prefix(marker.as_str());
            rest.is_none_or(str::is_empty)
        })
    };
    Marker::ALL.into_iter().all(has) && added.values().all(|token| stays_apart(&token.content))
}

/// Rendering of a chat.
pub(super) struct HarmonyText<'f> {
    fast_path: &'f FastPath,
    out: WorkText,
    /// Texts that are tokenized by themselves: they have text of an added token, or follow another one.
    literals: Literals,
}

/// A text with a limit of the work that it takes.
pub(super) struct WorkText {
    text: String,
    work_left: usize,
}

impl<'f> HarmonyText<'f> {
    pub(super) fn new(fast_path: &'f FastPath, chat: &Chat<'_>) -> Self {
        let likely = chat.messages.len() + chat.tools.map_or(0, str::len) + ADDED_TEXT;
        Self {
            fast_path,
            out: WorkText {
                text: String::with_capacity(likely.min(LONGEST_TEXT)),
                work_left: if chat.is_brief { BRIEF_WORK } else { MOST_WORK },
            },
            literals: Literals::new(),
        }
    }

    pub(super) fn marker(&mut self, marker: Marker) -> Result<(), ChatError> {
        self.out.push(marker.as_str())
    }

    /// Appends a text of the format itself.
    pub(super) fn word(&mut self, word: &str) -> Result<(), ChatError> {
        self.literal(|out| out.push(word)).map(drop)
    }

    /// Begins a message of a role.
    pub(super) fn open(&mut self, role: &str) -> Result<(), ChatError> {
        self.marker(Marker::Start)?;
        self.word(role)?;
        self.marker(Marker::Message)
    }

    /// Appends a text. Returns `false` if it has text of an added token.
    pub(super) fn literal(
        &mut self,
        write: impl FnOnce(&mut WorkText) -> Result<(), ChatError>,
    ) -> Result<bool, ChatError> {
        let from = self.out.text.len();
        write(&mut self.out)?;
        let written = from..self.out.text.len();
        let is_plain = !self.fast_path.has_added(&self.out.text[written.clone()]);
        if !is_plain {
            self.literals.push(written);
        }
        Ok(is_plain)
    }

    /// Appends the parts of a content. Each is tokenized by itself.
    pub(super) fn parts(&mut self, parts: &[&str]) -> Result<(), ChatError> {
        let parts = parts.iter().filter(|part| !part.is_empty());
        let is_one = parts.clone().count() < 2;
        for part in parts {
            if is_one {
                self.word(part)?;
                continue;
            }
            let from = self.out.text.len();
            self.out.push(part)?;
            self.literals.push(from..self.out.text.len());
        }
        Ok(())
    }

    pub(super) fn into_rendered(self) -> Rendered {
        Rendered::with_literals(self.out.text, self.literals)
    }
}

impl WorkText {
    /// Returns the text so far.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Spends work.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), ChatError> {
        let left = self.work_left.checked_sub(bytes);
        self.work_left = left.ok_or(ChatError::TooCostly)?;
        Ok(())
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), ChatError> {
        self.charge(text.len() + 1)?;
        if self.text.len() + text.len() > LONGEST_TEXT {
            return Err(ChatError::Unsupported("a rendering that is too long"));
        }
        self.text.push_str(text);
        Ok(())
    }

    pub(super) fn push_all(&mut self, texts: &[&str]) -> Result<(), ChatError> {
        texts.iter().try_for_each(|text| self.push(text))
    }
}
