//! Where a text may be cut so that its parts have the tokens of the whole.
//!
//! A tokenizer takes its added tokens out of the raw text first, from left to right, at each place the longest. What
//! stands between two of them is normalised, split and tokenised by itself. So the end of an added token is a place
//! where the tokens before and after know nothing of each other, if
//! - the token is matched in the raw text (`normalized: false`) and takes nothing of its surroundings (`lstrip`,
//!   `rstrip`, `single_word`), nor begins with white space that a token before it might take; and
//! - whoever tokenises the rest begins with that token and drops its id: some pre-tokenizers treat the beginning of a
//!   text otherwise (`prepend_scheme: first`), and a token after it may take white space to its left.

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::{AddedToken, Tokenizer};

/// Finds the places of one tokenizer.
#[derive(Debug)]
pub(crate) struct Boundaries {
    tokens: Option<AhoCorasick>,
    /// By pattern: the id of a token that a text may be cut behind.
    cuts: Vec<Option<u32>>,
}

/// A place that a text may be cut at: behind an added token, or a seam between words ([`crate::lane::Lane::seam`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// Where the token begins.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The token's; none of a seam.
    pub(crate) id: Option<u32>,
}

impl Boundary {
    pub(crate) fn seam(at: usize) -> Self {
        Self {
            start: at,
            end: at,
            id: None,
        }
    }
}

impl Boundaries {
    pub(crate) fn of(tokenizer: &Tokenizer) -> Self {
        let none = Self {
            tokens: None,
            cuts: Vec::new(),
        };
        let added = tokenizer.get_added_tokens_decoder();
        let raw: Vec<(u32, &AddedToken)> = added
            .iter()
            .filter(|(_, token)| !token.normalized && !token.content.is_empty())
            .map(|(id, token)| (*id, token))
            .collect();
        // Special tokens are not taken out then, and the rest may be one piece with them.
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
        match built {
            Ok(tokens) => Self {
                tokens: Some(tokens),
                cuts: raw
                    .iter()
                    .map(|(id, token)| is_plain(token).then_some(*id))
                    .collect(),
            },
            Err(_) => none,
        }
    }

    /// In the order of the text.
    pub(crate) fn find<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Boundary> + 't {
        let matches = self.tokens.iter().flat_map(move |tokens| tokens.find_iter(text));
        matches.filter_map(|found| {
            Some(Boundary {
                start: found.start(),
                end: found.end(),
                id: Some(self.cuts[found.pattern().as_usize()]?),
            })
        })
    }
}
