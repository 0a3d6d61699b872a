//! Rendered prompts: texts on their way to the tokenizer.

use std::ops::Range;

/// A prompt as the tokenizer's input.
#[derive(Debug)]
pub struct Rendered {
    pub(crate) text: String,
    /// The tokenizer adds its special tokens.
    pub(crate) special: bool,
    /// Parts in which no added token is searched.
    pub(crate) literals: Literals,
}

/// Parts of a text in which no added token is searched, in order. They are tokenized by themselves, as is the text
/// between them.
pub(crate) type Literals = Vec<Range<usize>>;

impl Rendered {
    /// Creates a text prompt. By default engines add their special tokens.
    #[must_use]
    pub fn text(text: String, add_special_tokens: bool) -> Self {
        Self {
            text,
            special: add_special_tokens,
            literals: Literals::default(),
        }
    }

    /// Creates a prompt with parts in which no added token is searched.
    pub(crate) fn with_literals(text: String, literals: Literals) -> Self {
        Self {
            literals,
            ..Self::text(text, false)
        }
    }

    /// Returns the text without added special tokens.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
