//! Words and their tokens, as met before: most of a text is words that were there a moment ago. A table of a fixed size,
//! so that nothing has to be counted or thrown out; a word whose place another word took is asked for again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Locks of a table. Each is held for one look, so that threads seldom want the same.
const GROUPS: usize = 1024;
/// Words of a group, in pairs of places that the same words may take. With 64 bytes each a table takes a MiB.
const GROUP: usize = 16;
/// Longest word that is kept, in bytes; longer ones seldom come again.
const LONGEST: usize = 30;
/// Most tokens of a word that is kept.
const MOST_TOKENS: usize = 8;

/// The words of one tokenizer.
#[derive(Debug)]
pub(crate) struct Words {
    groups: Box<[Mutex<[Word; GROUP]>]>,
    /// Another in each process: nobody outside can make words that take each other's places.
    seed: u64,
}

/// A word with its tokens; without a length there is none.
#[derive(Debug, Clone, Copy)]
struct Word {
    length: u8,
    count: u8,
    text: [u8; LONGEST],
    ids: [u32; MOST_TOKENS],
}

const NO_WORD: Word = Word {
    length: 0,
    count: 0,
    text: [0; LONGEST],
    ids: [0; MOST_TOKENS],
};

impl Word {
    fn is(&self, word: &[u8]) -> bool {
        self.text.get(..usize::from(self.length)) == Some(word)
    }

    fn ids(&self) -> &[u32] {
        self.ids.get(..usize::from(self.count)).unwrap_or_default()
    }
}

impl Words {
    pub(crate) fn new() -> Self {
        let group = |_| Mutex::new([NO_WORD; GROUP]);
        Self {
            groups: (0..GROUPS).map(group).collect(),
            seed: RandomState::new().hash_one(0),
        }
    }

    /// Appends the tokens of a word, which is not empty: those it had before, else what `ask` appends.
    pub(crate) fn append<E>(
        &self,
        word: &str,
        ids: &mut Vec<u32>,
        ask: impl FnOnce(&mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        if word.len() > LONGEST {
            return ask(ids);
        }
        let hash = xxh3_64_with_seed(word.as_bytes(), self.seed);
        if self.known(hash, word.as_bytes(), ids) {
            return Ok(());
        }
        let from = ids.len();
        ask(ids)?;
        self.keep(hash, word.as_bytes(), &ids[from..]);
        Ok(())
    }

    fn known(&self, hash: u64, word: &[u8], ids: &mut Vec<u32>) -> bool {
        self.at(hash, |[first, second]| {
            let found = [first, second].into_iter().find(|place| place.is(word));
            if let Some(found) = &found {
                ids.extend_from_slice(found.ids());
            }
            found.is_some()
        })
    }

    fn keep(&self, hash: u64, word: &[u8], tokens: &[u32]) {
        if tokens.len() > MOST_TOKENS {
            return;
        }
        let mut kept = NO_WORD;
        kept.length = word.len() as u8;
        kept.count = tokens.len() as u8;
        kept.text[..word.len()].copy_from_slice(word);
        kept.ids[..tokens.len()].copy_from_slice(tokens);
        self.at(hash, |[first, second]| {
            *second = *first;
            *first = kept;
        });
    }

    /// Shows the two places that a word may take.
    fn at<T>(&self, hash: u64, look: impl FnOnce(&mut [Word; 2]) -> T) -> T {
        let group = &self.groups[hash as usize % GROUPS];
        let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
        let (pairs, _) = group.as_chunks_mut::<2>();
        let pair = (hash >> 32) as usize % pairs.len();
        look(&mut pairs[pair])
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn ask(words: &Words, word: &str, answer: &[u32]) -> (Vec<u32>, bool) {
        let (mut ids, mut asked) = (Vec::new(), false);
        let Ok(()) = words.append(word, &mut ids, |ids| {
            asked = true;
            ids.extend_from_slice(answer);
            Ok::<_, Infallible>(())
        });
        (ids, asked)
    }

    #[test]
    fn a_word_is_asked_for_once() {
        let words = Words::new();
        assert_eq!(ask(&words, " the", &[1, 2]), (vec![1, 2], true));
        assert_eq!(ask(&words, " the", &[3]), (vec![1, 2], false));
        assert_eq!(ask(&words, " th", &[3]), (vec![3], true));
        // A word that stands for nothing is kept too.
        assert_eq!(ask(&words, "x", &[]), (vec![], true));
        assert_eq!(ask(&words, "x", &[5]), (vec![], false));
    }

    #[test]
    fn what_is_too_long_is_asked_for_each_time() {
        let words = Words::new();
        let (long, many) = ("x".repeat(LONGEST + 1), [1; MOST_TOKENS + 1]);
        for _ in 0..2 {
            assert!(ask(&words, &long, &[1]).1);
            assert!(ask(&words, "abc", &many).1);
        }
        let (longest, most) = ("x".repeat(LONGEST), [1; MOST_TOKENS]);
        assert!(ask(&words, &longest, &most).1);
        assert_eq!(ask(&words, &longest, &[]), (most.to_vec(), false));
    }

    #[test]
    fn no_word_gets_the_tokens_of_another() {
        let words = Words::new();
        for round in 0..2 {
            for number in 0..100_000_u32 {
                let (ids, asked) = ask(&words, &format!("w{number}"), &[number]);
                assert_eq!(ids, [number]);
                assert!(asked || round == 1);
            }
        }
    }
}
