//! Boundaries: positions where a text may be cut so that its parts have the tokens of the whole.
//!
//! A tokenizer first takes its added tokens out of the raw text, from left to right, the longest at each position. The
//! text between two of them is normalized, split and tokenized by itself. The tokens before and after the end of an
//! added token are therefore independent, if
//! - the token is matched in the raw text (`normalized: false`), takes no surrounding space (`lstrip`, `rstrip`,
//!   `single_word`), and does not begin with white space that an earlier token might take; and
//! - the rest is tokenized with that token in front, whose id is dropped: some pre-tokenizers treat the beginning of a
//!   text differently (`prepend_scheme: first`), and a token after it may take white space to its left.

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::{AddedToken, Tokenizer};

/// Finds the boundaries of one tokenizer.
#[derive(Debug)]
pub(crate) struct BoundaryFinder {
    tokens: Option<AhoCorasick>,
    /// Cuts by pattern: the id of a token that a text may be cut after.
    cuts: Vec<Option<u32>>,
    /// Texts of all tokens, sorted.
    texts: Vec<Box<[u8]>>,
    /// Length of the longest text.
    longest: usize,
}

/// A position where a text may be cut: after an added token, or a seam between words
/// ([`crate::fast_path::FastPath::seam`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextBoundary {
    /// Start of the token.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Id of the token; `None` for a seam.
    pub(crate) id: Option<u32>,
}

impl TextBoundary {
    pub(crate) fn seam(at: usize) -> Self {
        Self {
            start: at,
            end: at,
            id: None,
        }
    }
}

impl BoundaryFinder {
    pub(crate) fn of(tokenizer: &Tokenizer) -> Self {
        let none = Self {
            tokens: None,
            cuts: Vec::new(),
            texts: Vec::new(),
            longest: 0,
        };
        let added = tokenizer.get_added_tokens_decoder();
        let raw: Vec<(u32, &AddedToken)> = added
            .iter()
            .filter(|(_, token)| !token.normalized && !token.content.is_empty())
            .map(|(id, token)| (*id, token))
            .collect();
        // Then special tokens stay in the text, and the rest may form one piece with them.
        if tokenizer.get_added_vocabulary().get_encode_special_tokens() || raw.is_empty() {
            return none;
        }
        let built = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(raw.iter().map(|(_, token)| &*token.content));
        let is_plain = |token: &AddedToken| {
            !token.lstrip
                && !token.rstrip
                && !token.single_word
                && !token.content.starts_with(char::is_whitespace)
        };
        let mut texts: Vec<Box<[u8]>> = raw
            .iter()
            .map(|(_, token)| token.content.as_bytes().into())
            .collect();
        texts.sort();
        match built {
            Ok(tokens) => Self {
                longest: texts.iter().map(|text| text.len()).max().unwrap_or_default(),
                texts,
                tokens: Some(tokens),
                cuts: raw
                    .iter()
                    .map(|(id, token)| is_plain(token).then_some(*id))
                    .collect(),
            },
            Err(_) => none,
        }
    }

    /// Returns the boundaries in the order of the text.
    pub(crate) fn find<'t>(&'t self, text: &'t str) -> impl Iterator<Item = TextBoundary> + 't {
        let matches = self.tokens.iter().flat_map(move |tokens| tokens.find_iter(text));
        matches.filter_map(|found| {
            Some(TextBoundary {
                start: found.start(),
                end: found.end(),
                id: Some(self.cuts[found.pattern().as_usize()]?),
            })
        })
    }

    /// Returns `true` if `text` with a boundary, whose token starts at `start`, has that boundary whatever follows it.
    ///
    /// The search decides from left to right. It decides otherwise only where a longer text completes a token that
    /// `text` ends in.
    pub(crate) fn is_fixed(&self, text: &str, start: usize) -> bool {
        let bytes = text.as_bytes();
        let from = (bytes.len() + 1).saturating_sub(self.longest);
        (from..=start).all(|at| !self.begins_longer(&bytes[at..]))
    }

    /// Returns `true` if a token is longer than `rest` and begins with it.
    fn begins_longer(&self, rest: &[u8]) -> bool {
        let at = self.texts.partition_point(|text| **text <= *rest);
        self.texts.get(at).is_some_and(|text| text.starts_with(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_that_a_longer_token_may_replace_is_not_fixed() {
        let texts = ["<a>", "<a>\n\n", "<b>", "x<b>yz"];
        let mut sorted: Vec<Box<[u8]>> = texts.iter().map(|text| text.as_bytes().into()).collect();
        sorted.sort();
        let finder = BoundaryFinder {
            tokens: None,
            cuts: Vec::new(),
            texts: sorted,
            longest: 6,
        };
        for (text, start, expected) in [
            ("t<b>", 1, true),
            ("t<a>", 1, false),
            ("t<a>\n", 1, false),
            ("t<a>\n\n", 1, true),
            ("t<a>\nt", 1, true),
            ("tx<b>", 2, false),
            ("tx<b>y", 2, false),
            ("tx<b>t", 2, true),
            ("<b><", 0, true),
            ("<b>", 0, true),
        ] {
            assert_eq!(finder.is_fixed(text, start), expected, "{text}");
        }
    }
}
