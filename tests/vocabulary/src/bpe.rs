//! The vocabulary and the merges, and how a single word is taken apart. Byte-level BPE as in GPT-2: each byte has a
//! printable letter.

use crate::{CONSONANTS, VOWELS, WORDS, word};

/// Bytes, pairs of consonant and vowel, words, words behind a space.
const PAIRS_FROM: u32 = 256;
const WORDS_FROM: u32 = PAIRS_FROM + 100;
const SPACED_FROM: u32 = WORDS_FROM + WORDS as u32;
/// `<|endoftext|>`, the end of an answer.
pub(super) const TEXT_END: u32 = SPACED_FROM + WORDS as u32;
/// `<|im_start|>`
pub(super) const MESSAGE_START: u32 = TEXT_END + 1;
/// `<|im_end|>`
pub(super) const MESSAGE_END: u32 = TEXT_END + 2;

/// Returns the printable letter that stands for a byte.
pub(super) fn letter(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        // The others, in their order, from U+0100 on.
        0..=0x20 => above(u32::from(byte)),
        0x7f..=0xa0 => above(u32::from(byte) - 0x7f + 0x21),
        0xad => above(0x43),
    }
}

fn above(place: u32) -> char {
    char::from_u32(0x100 + place).expect("these are letters of Latin Extended-A")
}

/// Returns every token with its id, special ones excepted.
pub(super) fn tokens() -> Vec<String> {
    let mut tokens: Vec<String> = (0..=255).map(|byte| letter(byte).to_string()).collect();
    tokens.extend(pairs().map(text));
    tokens.extend((0..WORDS).map(|number| text(word(number))));
    let space = letter(b' ');
    tokens.extend((0..WORDS).map(|number| format!("{space}{}", text(word(number)))));
    tokens
}

/// Returns the merges, the first of which go first.
pub(super) fn merges() -> Vec<(String, String)> {
    let pairs = pairs().map(|[first, second]| (text([first]), text([second])));
    let words = (0..WORDS).map(|number| {
        let [first, second, third] = word(number);
        (text([first, second]), text([third]))
    });
    let space = letter(b' ').to_string();
    let spaced = (0..WORDS).map(|number| (space.clone(), text(word(number))));
    pairs.chain(words).chain(spaced).collect()
}

fn pairs() -> impl Iterator<Item = [u8; 2]> {
    let with_vowels = |consonant: &'static u8| VOWELS.iter().map(move |vowel| [*consonant, *vowel]);
    CONSONANTS.iter().flat_map(with_vowels)
}

fn text<const LENGTH: usize>(letters: [u8; LENGTH]) -> String {
    letters.into_iter().map(char::from).collect()
}

/// Appends the tokens of one word, as the splitting pattern cuts it out.
pub(super) fn encode_word(word: &str, tokens: &mut Vec<u32>) {
    let mut parts: Vec<u32> = word.bytes().map(u32::from).collect();
    while let Some((at, whole)) = lowest_merge(&parts) {
        parts.splice(at..at + 2, [whole]);
    }
    tokens.extend(parts);
}

/// Returns the position and the result of the merge that goes first. The ids of results are in the order of the
/// merges.
fn lowest_merge(parts: &[u32]) -> Option<(usize, u32)> {
    let wholes = parts.windows(2).enumerate();
    wholes
        .filter_map(|(at, pair)| Some((at, merged(pair[0], pair[1])?)))
        .min_by_key(|(_, whole)| *whole)
}

fn merged(first: u32, second: u32) -> Option<u32> {
    let place = |letters: &[u8], byte: u32| {
        let place = letters.iter().position(|letter| u32::from(*letter) == byte)?;
        u32::try_from(place).ok()
    };
    if first < PAIRS_FROM && second < PAIRS_FROM {
        return Some(PAIRS_FROM + place(CONSONANTS, first)? * 5 + place(VOWELS, second)?);
    }
    if (PAIRS_FROM..WORDS_FROM).contains(&first) && second < PAIRS_FROM {
        return Some(WORDS_FROM + (first - PAIRS_FROM) * 20 + place(CONSONANTS, second)?);
    }
    let is_spaced = first == u32::from(b' ') && (WORDS_FROM..SPACED_FROM).contains(&second);
    is_spaced.then(|| second - WORDS_FROM + SPACED_FROM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[track_caller]
    fn check(word: &str, expected: &[&str]) {
        let mut ids = Vec::new();
        encode_word(word, &mut ids);
        let tokens = tokens();
        let found: Vec<_> = ids.iter().map(|id| tokens[*id as usize].as_str()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn words_are_put_together_by_the_merges() {
        check("bak", &["bak"]);
        check(" bak", &["Ġbak"]);
        check("user", &["u", "ser"]);
        check("assistant", &["a", "s", "sis", "tan", "t"]);
        check("\n", &["Ċ"]);
    }

    #[test]
    fn every_token_has_one_id_and_each_merge_makes_one() {
        let tokens = tokens();
        assert_eq!(tokens.len() as u32, TEXT_END);
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), tokens.len());
        for (place, (first, second)) in merges().into_iter().enumerate() {
            assert_eq!(tokens[PAIRS_FROM as usize + place], first + &second);
        }
    }
}
