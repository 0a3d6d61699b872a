//! Detokenizer. Words are hashed to ids (`tokens.rs`), so an id has no inherent text: here each id has one synthetic
//! word that is tokenized to it.

use std::sync::LazyLock;

use crate::tokens::{FIRST_WORD, VOCABULARY, special_name, token_id};

const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

/// One word per id; empty for ids without text.
static WORDS: LazyLock<Vec<Box<str>>> = LazyLock::new(words);

/// Returns a text that is tokenized to these ids; `None` for an unknown id.
pub(crate) fn text_of(ids: &[u32]) -> Option<String> {
    let word = |id: &u32| special_name(*id).or_else(|| WORDS.get(*id as usize).map(|word| &**word));
    ids.iter().map(word).collect()
}

/// Enumerates all words of letters with a space, until every id has one.
fn words() -> Vec<Box<str>> {
    let mut words = vec![Box::<str>::default(); VOCABULARY as usize];
    let mut missing = words.len() - FIRST_WORD as usize;
    for number in 0_u64.. {
        if missing == 0 {
            break;
        }
        let word = spell(number);
        let known = &mut words[token_id(&word) as usize];
        if known.is_empty() {
            *known = word.into();
            missing -= 1;
        }
    }
    words
}

/// Returns the word with that number: a space and its digits in base 26, shorter ones first.
fn spell(number: u64) -> String {
    let mut letters = Vec::new();
    let mut rest = number + 1;
    while rest > 0 {
        rest -= 1;
        letters.push(LETTERS[(rest % 26) as usize].into());
        rest /= 26;
    }
    std::iter::once(' ').chain(letters.into_iter().rev()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokenize;

    #[test]
    fn a_text_of_any_words_is_tokenized_to_their_ids() {
        let ids: Vec<u32> = (FIRST_WORD..VOCABULARY).collect();
        assert_eq!(tokenize(&text_of(&ids).unwrap()), ids);
    }

    #[test]
    fn special_tokens_have_names_and_what_is_beyond_the_vocabulary_has_none() {
        assert_eq!(text_of(&[0, 1]).as_deref(), Some("<|im_start|><|im_end|>"));
        assert_eq!(text_of(&[VOCABULARY]), None);
        assert_eq!(text_of(&[]).as_deref(), Some(""));
    }

    #[test]
    fn words_are_counted_shorter_ones_first() {
        let words: Vec<String> = [0, 25, 26, 701, 702].map(spell).into();
        assert_eq!(words, [" a", " z", " aa", " zz", " aaa"]);
    }
}
