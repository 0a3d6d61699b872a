//! Fast path for byte-level tokenizers: those of GPT-2, Llama 3, Qwen and DeepSeek. `tokenizers` tracks the origin of
//! every character, which is not needed here, at thousands of instructions per byte. The fast path supports tokenizers
//! with only these steps:
//! - no normalization, or NFC and a text that is NFC already,
//! - a split by patterns whose matches become words, as does the text between them, and
//! - bytes as letters ([`ByteLevel`]).
//!
//! It finds their added tokens and words in the text itself, and calls the tokenizer's own model for new words. Other
//! tokenizers and texts use the slow path, `tokenizers` itself.

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{AddedToken, Model as _, SplitDelimiterBehavior, Tokenizer};
use unicode_normalization_alignments::{IsNormalized, is_nfc_quick};

use crate::budget::Budget;
use crate::error::EncodeError;
use crate::split::{TextWord, WordSplitter};
use crate::word_cache::{WordCache, WordTable};

/// Pattern of [`ByteLevel`] itself: GPT-2's, which `tokenizers` does not export.
const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Steps of a tokenizer that the fast path supports.
#[derive(Debug)]
pub(crate) struct FastPath {
    /// Texts must be NFC.
    nfc: bool,
    /// Added tokens matched in the text, and those matched in the normalized rest.
    added: [Option<AddedTokens>; 2],
    splitters: Vec<WordSplitter>,
    /// Words can be separated without the text before them: see [`FastPath::seam`].
    has_seams: bool,
    /// Letter of each byte.
    letters: [char; 256],
    words: WordCache,
}

/// Added tokens.
#[derive(Debug)]
struct AddedTokens {
    search: AhoCorasick,
    /// Ids by pattern, if the token takes no surrounding space.
    ids: Vec<Option<u32>>,
}

/// State of encoding one text.
struct EncodeState<'a, 'b> {
    tokenizer: &'a Tokenizer,
    words: &'a mut WordTable,
    ids: &'a mut Vec<u32>,
    budget: &'a mut Budget<'b>,
}

/// Reason why a text cannot be tokenized here.
#[derive(Debug)]
enum FastPathStop {
    /// The text needs the slow path.
    Unknown,
    Failed(EncodeError),
}

impl From<EncodeError> for FastPathStop {
    fn from(error: EncodeError) -> Self {
        Self::Failed(error)
    }
}

impl FastPath {
    /// Creates the fast path of a tokenizer; `None` if a step is unknown.
    pub(crate) fn of(tokenizer: &Tokenizer) -> Option<Self> {
        if tokenizer.get_added_vocabulary().get_encode_special_tokens() {
            return None;
        }
        let splitters = splitters(tokenizer.get_pre_tokenizer()?)?;
        Some(Self {
            nfc: is_nfc(tokenizer.get_normalizer())?,
            added: [
                AddedTokens::of(tokenizer, false)?,
                AddedTokens::of(tokenizer, true)?,
            ],
            has_seams: has_seams(&splitters, tokenizer),
            splitters,
            letters: letters(),
            words: WordCache::new(),
        })
    }

    /// Returns the first seam from `from` on in a text that is split from its beginning: before a space after an ASCII
    /// letter. The tokens of both sides are independent, whatever follows. `None` if there is no seam, or if earlier
    /// text is not ASCII, so that its words are unknown.
    pub(crate) fn seam(&self, text: &str, from: usize) -> Option<usize> {
        if !self.has_seams {
            return None;
        }
        let bytes = text.as_bytes();
        let mut spaces = memchr::memchr_iter(b' ', bytes.get(from..)?).map(|space| from + space);
        let seam = spaces.find(|space| *space > 0 && bytes[space - 1].is_ascii_alphabetic())?;
        bytes[..seam].is_ascii().then_some(seam)
    }

    /// Appends a text's tokens. Returns `false` and appends nothing if the text needs the slow path.
    pub(crate) fn encode(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        ids: &mut Vec<u32>,
        budget: &mut Budget<'_>,
    ) -> Result<bool, EncodeError> {
        self.encode_taking(&self.added, tokenizer, text, ids, budget)
    }

    /// Appends a text's tokens, with these added tokens.
    fn encode_taking(
        &self,
        added: &[Option<AddedTokens>],
        tokenizer: &Tokenizer,
        text: &str,
        ids: &mut Vec<u32>,
        budget: &mut Budget<'_>,
    ) -> Result<bool, EncodeError> {
        budget.look(text.len())?;
        if self.nfc && !text.is_ascii() && is_nfc_quick(text.chars()) != IsNormalized::Yes {
            return Ok(false);
        }
        let from = ids.len();
        let mut state = EncodeState {
            tokenizer,
            words: &mut self.words.borrow(),
            ids,
            budget,
        };
        match self.between(added, text, &mut state) {
            Ok(()) => Ok(true),
            Err(FastPathStop::Unknown) => {
                ids.truncate(from);
                Ok(false)
            }
            Err(FastPathStop::Failed(error)) => Err(error),
        }
    }

    /// Returns `true` if it encodes every text without added tokens.
    pub(crate) fn takes_every_text(&self) -> bool {
        !self.nfc
    }

    /// Returns `true` if a text has an added token.
    pub(crate) fn has_added(&self, text: &str) -> bool {
        let mut added = self.added.iter().flatten();
        added.any(|added| added.search.is_match(text))
    }

    /// Appends the tokens of a text in which added tokens are not searched. The fast path must take every text.
    pub(crate) fn encode_literal(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        ids: &mut Vec<u32>,
        budget: &mut Budget<'_>,
    ) -> Result<(), EncodeError> {
        let taken = self.encode_taking(&[], tokenizer, text, ids, budget)?;
        debug_assert!(taken, "the fast path takes every text without added tokens");
        Ok(())
    }

    /// Removes added tokens, and splits the text between them into words.
    fn between(
        &self,
        added: &[Option<AddedTokens>],
        text: &str,
        to: &mut EncodeState<'_, '_>,
    ) -> Result<(), FastPathStop> {
        let Some((first, others)) = added.split_first() else {
            return self.split(&self.splitters, text, to);
        };
        let mut from = 0;
        if let Some(AddedTokens { search, ids: known }) = first {
            for found in search.find_iter(text) {
                let id = known[found.pattern().as_usize()].ok_or(FastPathStop::Unknown)?;
                self.between(others, &text[from..found.start()], to)?;
                to.ids.push(id);
                from = found.end();
            }
        }
        self.between(others, &text[from..], to)
    }

    fn split(
        &self,
        splitters: &[WordSplitter],
        text: &str,
        to: &mut EncodeState<'_, '_>,
    ) -> Result<(), FastPathStop> {
        match splitters {
            [] if text.is_empty() => Ok(()),
            [] => self.word(TextWord::whole(text), to),
            [last] => last.each(text, |word| self.word(word, to)),
            [first, others @ ..] => first.each(text, |part| self.split(others, part.as_str(), to)),
        }
    }

    fn word(&self, word: TextWord<'_>, to: &mut EncodeState<'_, '_>) -> Result<(), FastPathStop> {
        let (tokenizer, budget) = (to.tokenizer, &mut *to.budget);
        to.words.append(word, to.ids, |ids| {
            let word = word.as_str();
            budget.word(word.len())?;
            let letters: String = word.bytes().map(|byte| self.letters[usize::from(byte)]).collect();
            let tokens = tokenizer
                .get_model()
                .tokenize(&letters)
                .map_err(EncodeError::Failed)?;
            ids.extend(tokens.iter().map(|token| token.id));
            Ok(())
        })
    }
}

impl AddedTokens {
    /// Returns the tokens matched in the normalized text, or the others. The outer `None`: they cannot be searched
    /// here.
    #[expect(
        clippy::option_option,
        reason = "none of them is not the same as none that can be used"
    )]
    fn of(tokenizer: &Tokenizer, normalized: bool) -> Option<Option<Self>> {
        let added = tokenizer.get_added_tokens_decoder();
        let is_of = |token: &AddedToken| token.normalized == normalized && !token.content.is_empty();
        let tokens: Vec<_> = added.iter().filter(|(_, token)| is_of(token)).collect();
        if tokens.is_empty() {
            return Some(None);
        }
        let stays = |token: &AddedToken| is_nfc_quick(token.content.chars()) == IsNormalized::Yes;
        if normalized && !tokens.iter().all(|(_, token)| stays(token)) {
            return None;
        }
        let is_plain = |token: &AddedToken| !token.lstrip && !token.rstrip && !token.single_word;
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(_, token)| &*token.content))
            .ok()?;
        Some(Some(Self {
            search,
            ids: tokens
                .iter()
                .map(|(id, token)| is_plain(token).then_some(**id))
                .collect(),
        }))
    }
}

/// Returns `true` if letters and the spaces after them are never in one word, and no added token changes that.
fn has_seams(splitters: &[WordSplitter], tokenizer: &Tokenizer) -> bool {
    let Some((last, first)) = splitters.split_last() else {
        return false;
    };
    // Words end there in the last splitter; the earlier ones do not affect letters and spaces.
    let ends = last.ends_words_at_spaces() && first.iter().all(WordSplitter::passes_words_on);
    let stays_apart = |token: &AddedToken| {
        let bytes = token.content.as_bytes();
        let spans = bytes
            .windows(2)
            .any(|pair| pair[0].is_ascii_alphabetic() && pair[1] == b' ');
        let takes_space = token.rstrip && bytes.last().is_some_and(u8::is_ascii_alphabetic);
        !spans && !takes_space
    };
    ends && tokenizer.get_added_tokens_decoder().values().all(stays_apart)
}

/// Returns `true` for NFC and `false` for none; `None` for other normalizers.
fn is_nfc(normalizer: Option<&NormalizerWrapper>) -> Option<bool> {
    match normalizer {
        None => Some(false),
        Some(NormalizerWrapper::NFC(_)) => Some(true),
        Some(NormalizerWrapper::Sequence(all)) => match all.as_ref() {
            [] => Some(false),
            [one] => is_nfc(Some(one)),
            _ => None,
        },
        Some(_) => None,
    }
}

/// Returns the patterns that split a text, in order; `None` for other steps.
fn splitters(pre_tokenizer: &PreTokenizerWrapper) -> Option<Vec<WordSplitter>> {
    let steps = match pre_tokenizer {
        PreTokenizerWrapper::Sequence(steps) => steps.as_ref(),
        step => std::slice::from_ref(step),
    };
    let (PreTokenizerWrapper::ByteLevel(bytes), patterns) = steps.split_last()? else {
        return None;
    };
    let pattern = |step: &PreTokenizerWrapper| match step {
        PreTokenizerWrapper::Split(split) => match (&split.pattern, split.behavior) {
            // The choice of match and gap does not matter if both become words.
            (SplitPattern::Regex(pattern), SplitDelimiterBehavior::Isolated) => {
                WordSplitter::new(pattern).ok()
            }
            _ => None,
        },
        _ => None,
    };
    let own = bytes.use_regex.then(|| WordSplitter::new(GPT_2).ok());
    let all = patterns.iter().map(pattern).chain(own);
    (!bytes.add_prefix_space).then(|| all.collect()).flatten()
}

/// Returns the letters that [`ByteLevel`] makes of bytes.
fn letters() -> [char; 256] {
    let alphabet = ByteLevel::alphabet();
    // Letters represent themselves; the others get code points after all bytes, in order.
    let mut behind = (256..).filter_map(char::from_u32);
    std::array::from_fn(|byte| {
        let own = char::from(byte as u8);
        if alphabet.contains(&own) {
            own
        } else {
            behind.next().unwrap_or(own)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use serde_json::{Value, json};

    use super::*;

    const PATTERN: &str = r" ?\p{L}+|\s+";

    /// Returns a tokenizer with these steps, and bytes and " t" as vocabulary.
    fn tokenizer(normalizer: Value, pre_tokenizer: Value, added: &Value) -> Tokenizer {
        let mut vocabulary: serde_json::Map<_, _> = letters()
            .iter()
            .zip(0_u32..)
            .map(|(letter, id)| (letter.to_string(), id.into()))
            .collect();
        vocabulary.insert("Ġt".to_owned(), 256.into());
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "post_processor": null, "decoder": null,
            "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary, "merges": [["Ġ", "t"]]},
        });
        Tokenizer::from_str(&json.to_string()).unwrap()
    }

    fn bytes(prefix: bool, regex: bool) -> Value {
        json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex})
    }

    fn split(pattern: Value, behavior: &str) -> Value {
        json!({"type": "Split", "pattern": pattern, "behavior": behavior, "invert": false})
    }

    fn sequence(steps: Vec<Value>) -> Value {
        json!({"type": "Sequence", "pretokenizers": steps})
    }

    fn token(content: &str, flag: &str) -> Value {
        json!([{"id": 257, "content": content, "special": true, "single_word": flag == "word", "lstrip": flag == "left",
            "rstrip": flag == "right", "normalized": flag == "normalized"}])
    }

    #[test]
    fn only_tokenizers_whose_every_step_is_known_have_a_lane() {
        let has =
            |normalizer, steps, added: &Value| FastPath::of(&tokenizer(normalizer, steps, added)).is_some();
        let (none, nfc, no_tokens) = (Value::Null, json!({"type": "NFC"}), json!([]));
        let regex = || json!({"Regex": PATTERN});
        let no_steps = json!({"type": "Sequence", "normalizers": []});
        for normalizer in [none.clone(), nfc.clone(), no_steps] {
            assert!(has(normalizer.clone(), bytes(false, true), &no_tokens));
            let steps = sequence(vec![split(regex(), "Isolated"), bytes(false, false)]);
            assert!(has(normalizer, steps, &no_tokens));
        }
        assert!(!has(json!({"type": "Lowercase"}), bytes(false, true), &no_tokens));
        assert!(!has(
            json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}),
            bytes(false, true),
            &no_tokens
        ));
        for steps in [
            bytes(true, true),
            json!({"type": "WhitespaceSplit"}),
            sequence(vec![]),
            sequence(vec![split(regex(), "Removed"), bytes(false, false)]),
            sequence(vec![
                split(json!({"String": " "}), "Isolated"),
                bytes(false, false),
            ]),
            sequence(vec![bytes(false, false), split(regex(), "Isolated")]),
            sequence(vec![
                json!({"type": "Digits", "individual_digits": true}),
                bytes(false, true),
            ]),
        ] {
            assert!(!has(none.clone(), steps.clone(), &no_tokens), "{steps}");
        }
        // The normalized text would contain another form.
        assert!(!has(nfc, bytes(false, true), &token("e\u{301}", "normalized")));
    }

    #[test]
    fn texts_with_more_than_the_lane_knows_go_the_long_way() {
        let check = |text: &str, flag: &str, taken: bool| {
            let tokenizer = tokenizer(json!({"type": "NFC"}), bytes(false, true), &token("<x>", flag));
            let fast_path = FastPath::of(&tokenizer).unwrap();
            let mut ids = vec![7];
            assert_eq!(
                fast_path
                    .encode(&tokenizer, text, &mut ids, &mut Budget::unlimited())
                    .unwrap(),
                taken,
                "{text:?} {flag}"
            );
            let expected = tokenizer.encode_fast(text, false).unwrap();
            assert_eq!(ids[0], 7);
            assert_eq!(
                &ids[1..],
                if taken { expected.get_ids() } else { &[] },
                "{text:?}"
            );
        };
        for flag in ["", "normalized"] {
            check("a tt <x> t<x>é", flag, true);
        }
        for flag in ["left", "right", "word"] {
            check("a t", flag, true);
            check("a <x> t", flag, false);
        }
        check("é", "", true);
        check("e\u{301}", "", false);
        check("", "", true);
    }
}
