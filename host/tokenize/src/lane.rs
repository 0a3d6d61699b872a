//! A fast lane for byte-level tokenizers, the shape of GPT-2, Llama 3, Qwen and DeepSeek. `tokenizers` carries every text through a
//! string that knows where each of its characters came from, which nobody asks for here, at thousands of instructions a
//! byte. Where a tokenizer's steps are known to be no more than
//! - none or NFC, and a text that is NFC already,
//! - a split by patterns whose matches become words and what lies between them too, and
//! - bytes as letters ([`ByteLevel`]),
//!
//! its added tokens and words are found in the text itself, and the tokenizer's own model is asked for the words that are new. Whatever
//! else there is, in a tokenizer or a text, goes the long way.

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{AddedToken, Model as _, SplitDelimiterBehavior, Tokenizer};
use unicode_normalization_alignments::{IsNormalized, is_nfc_quick};

use crate::budget::Budget;
use crate::model::EncodeError;
use crate::split::Splitter;
use crate::words::{Table, Words};

/// How [`ByteLevel`] itself splits: GPT-2's pattern, which `tokenizers` keeps to itself.
const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// What is known of a tokenizer that has one.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Whether texts have to be NFC.
    nfc: bool,
    /// Added tokens that are taken out of the text, and out of what is left and normalised.
    added: [Option<Added>; 2],
    splitters: Vec<Splitter>,
    /// Whether words can be told apart without looking at the text before them: see [`Lane::seam`].
    has_seams: bool,
    /// The letter that stands for each byte.
    letters: [char; 256],
    words: Words,
}

/// Added tokens.
#[derive(Debug)]
struct Added {
    search: AhoCorasick,
    /// By pattern: its id, if it takes nothing of what stands beside it.
    ids: Vec<Option<u32>>,
}

/// One text's way through it.
struct Asking<'a, 'b> {
    tokenizer: &'a Tokenizer,
    words: &'a mut Table,
    ids: &'a mut Vec<u32>,
    budget: &'a mut Budget<'b>,
}

/// Why a text cannot be tokenised here.
#[derive(Debug)]
enum Stop {
    /// It has what has to go the long way.
    Unknown,
    Failed(EncodeError),
}

impl From<EncodeError> for Stop {
    fn from(error: EncodeError) -> Self {
        Self::Failed(error)
    }
}

impl Lane {
    /// The lane of a tokenizer whose steps are all known.
    pub(crate) fn of(tokenizer: &Tokenizer) -> Option<Self> {
        if tokenizer.get_added_vocabulary().get_encode_special_tokens() {
            return None;
        }
        let splitters = splitters(tokenizer.get_pre_tokenizer()?)?;
        Some(Self {
            nfc: is_nfc(tokenizer.get_normalizer())?,
            added: [Added::of(tokenizer, false)?, Added::of(tokenizer, true)?],
            has_seams: has_seams(&splitters, tokenizer),
            splitters,
            letters: letters(),
            words: Words::new(),
        })
    }

    /// The first place from `from` on, in a text whose words are told from its beginning, where it may be cut: before a space behind an ASCII
    /// letter. The tokens of both sides know nothing of each other, whatever comes later. None where there is no such place, or
    /// something before it is not ASCII and nobody knows which words that makes.
    pub(crate) fn seam(&self, text: &str, from: usize) -> Option<usize> {
        if !self.has_seams {
            return None;
        }
        let bytes = text.as_bytes();
        let mut spaces = memchr::memchr_iter(b' ', bytes.get(from..)?).map(|space| from + space);
        let seam = spaces.find(|space| *space > 0 && bytes[space - 1].is_ascii_alphabetic())?;
        bytes[..seam].is_ascii().then_some(seam)
    }

    /// Appends a text's tokens; false: it has to go the long way, and nothing was appended.
    pub(crate) fn encode(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        (ids, budget): (&mut Vec<u32>, &mut Budget<'_>),
    ) -> Result<bool, EncodeError> {
        budget.look(text.len())?;
        if self.nfc && !text.is_ascii() && is_nfc_quick(text.chars()) != IsNormalized::Yes {
            return Ok(false);
        }
        let from = ids.len();
        let mut asking = Asking {
            tokenizer,
            words: &mut self.words.borrow(),
            ids,
            budget,
        };
        match self.between(&self.added, text, &mut asking) {
            Ok(()) => Ok(true),
            Err(Stop::Unknown) => {
                ids.truncate(from);
                Ok(false)
            }
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Takes out added tokens, and makes words of what stands between them.
    fn between(&self, added: &[Option<Added>], text: &str, to: &mut Asking<'_, '_>) -> Result<(), Stop> {
        let Some((first, others)) = added.split_first() else {
            return self.split(&self.splitters, text, to);
        };
        let mut from = 0;
        if let Some(Added { search, ids: known }) = first {
            for found in search.find_iter(text) {
                let id = known[found.pattern().as_usize()].ok_or(Stop::Unknown)?;
                self.between(others, &text[from..found.start()], to)?;
                to.ids.push(id);
                from = found.end();
            }
        }
        self.between(others, &text[from..], to)
    }

    fn split(&self, splitters: &[Splitter], text: &str, to: &mut Asking<'_, '_>) -> Result<(), Stop> {
        match splitters {
            [] if text.is_empty() => Ok(()),
            [] => self.word(text, to),
            [last] => last.each(text, |word| self.word(word, to)),
            [first, others @ ..] => first.each(text, |part| self.split(others, part, to)),
        }
    }

    fn word(&self, word: &str, to: &mut Asking<'_, '_>) -> Result<(), Stop> {
        let (tokenizer, budget) = (to.tokenizer, &mut *to.budget);
        to.words.append(word, to.ids, |ids| {
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

impl Added {
    /// Those that are matched in the normalised text, or the others. The outer none: they cannot be found here.
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

/// Whether letters and the spaces behind them are never in one word, and no added token changes that.
fn has_seams(splitters: &[Splitter], tokenizer: &Tokenizer) -> bool {
    let Some((last, first)) = splitters.split_last() else {
        return false;
    };
    // Words end there in the last splitter; those before it leave what is around it as it is.
    let ends = last.ends_words_at_spaces() && first.iter().all(Splitter::passes_words_on);
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

/// Whether it is NFC, or nothing; none for others.
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

/// The patterns that a text is split by, one after the other; none where something else is done to it.
fn splitters(pre_tokenizer: &PreTokenizerWrapper) -> Option<Vec<Splitter>> {
    let steps = match pre_tokenizer {
        PreTokenizerWrapper::Sequence(steps) => steps.as_ref(),
        step => std::slice::from_ref(step),
    };
    let (PreTokenizerWrapper::ByteLevel(bytes), patterns) = steps.split_last()? else {
        return None;
    };
    let pattern = |step: &PreTokenizerWrapper| match step {
        PreTokenizerWrapper::Split(split) => match (&split.pattern, split.behavior) {
            // Which of the two is a match does not matter where both become words.
            (SplitPattern::Regex(pattern), SplitDelimiterBehavior::Isolated) => Splitter::new(pattern).ok(),
            _ => None,
        },
        _ => None,
    };
    let own = bytes.use_regex.then(|| Splitter::new(GPT_2).ok());
    let all = patterns.iter().map(pattern).chain(own);
    (!bytes.add_prefix_space).then(|| all.collect()).flatten()
}

/// As [`ByteLevel`] makes letters of bytes, whichever words it is given.
fn letters() -> [char; 256] {
    let alphabet = ByteLevel::alphabet();
    // Those that are letters stand for themselves, the others for what comes behind all bytes, in their order.
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

    /// A tokenizer with these steps whose vocabulary is bytes and " t".
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
        let has = |normalizer, steps, added: &Value| Lane::of(&tokenizer(normalizer, steps, added)).is_some();
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
        // In the normalised text it would stand otherwise.
        assert!(!has(nfc, bytes(false, true), &token("e\u{301}", "normalized")));
    }

    #[test]
    fn texts_with_more_than_the_lane_knows_go_the_long_way() {
        let check = |text: &str, flag: &str, taken: bool| {
            let tokenizer = tokenizer(json!({"type": "NFC"}), bytes(false, true), &token("<x>", flag));
            let lane = Lane::of(&tokenizer).unwrap();
            let mut ids = vec![7];
            assert_eq!(
                lane.encode(&tokenizer, text, (&mut ids, &mut Budget::unlimited()))
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
