//! Word cache: the tokens of recent words, which make up most of a text. Its tables have a fixed size, so nothing is
//! counted or evicted; a replaced word is computed again.
//!
//! A lookup must cost less than it saves, so each text borrows a table of its own: there is no lock per word. Short
//! words, nearly all of them, are one or two numbers, and share a cache line with the other words of their set.

mod places;
mod tiny;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use places::{LONG_PAIRS, LongWord, MOST_SHORT_TOKENS, MOST_TOKENS, PlaceTable, SHORT_PAIRS, ShortWord};
use tiny::{TinyTable, TinyWord};

use crate::split::TextWord;

/// Words of one tokenizer: a table per text that is being tokenized.
#[derive(Debug)]
pub(crate) struct WordCache {
    /// Unused tables. The lock is held to take or return one.
    idle: Mutex<Vec<WordTable>>,
    most_idle: usize,
    /// Random per process, so that conflicting words cannot be prepared.
    seeds: [u64; 2],
}

/// Table of one text, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct BorrowedTable<'w> {
    words: &'w WordCache,
    /// Present until the drop.
    table: Option<WordTable>,
}

#[derive(Debug)]
pub(crate) struct WordTable {
    seeds: [u64; 2],
    tiny: TinyTable,
    /// Those of more than seven bytes or two tokens, and tiny ones as they were computed.
    short: PlaceTable<ShortWord, MOST_SHORT_TOKENS, SHORT_PAIRS>,
    long: PlaceTable<LongWord, MOST_TOKENS, LONG_PAIRS>,
}

impl WordCache {
    pub(crate) fn new() -> Self {
        Self {
            idle: Mutex::default(),
            most_idle: available_parallelism().map_or(1, usize::from),
            seeds: [0, 1].map(|which| RandomState::new().hash_one(which)),
        }
    }

    /// Borrows a table for a text: the one used last, which is likely to be in the processor's cache.
    pub(crate) fn borrow(&self) -> BorrowedTable<'_> {
        let table = self.idle().pop();
        BorrowedTable {
            words: self,
            table: Some(table.unwrap_or_else(|| WordTable::new(self.seeds))),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<WordTable>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for BorrowedTable<'_> {
    type Target = WordTable;

    fn deref(&self) -> &WordTable {
        self.table.as_ref().expect("it is there until the drop")
    }
}

impl DerefMut for BorrowedTable<'_> {
    fn deref_mut(&mut self) -> &mut WordTable {
        self.table.as_mut().expect("it is there until the drop")
    }
}

impl Drop for BorrowedTable<'_> {
    fn drop(&mut self) {
        let mut idle = self.words.idle();
        if idle.len() < self.words.most_idle {
            idle.extend(self.table.take());
        }
    }
}

impl WordTable {
    fn new(seeds: [u64; 2]) -> Self {
        Self {
            seeds,
            tiny: TinyTable::new(),
            short: PlaceTable::new(),
            long: PlaceTable::new(),
        }
    }

    /// Appends the tokens of a word that is not empty: the cached ones, or else those that `compute` appends.
    #[inline]
    pub(crate) fn append<E>(
        &mut self,
        word: TextWord<'_>,
        ids: &mut Vec<u32>,
        compute: impl FnOnce(&mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(tiny) = TinyWord::of(word) else {
            return self.append_longer(word, ids, compute);
        };
        let hash = self.hash(tiny.0, 0);
        if self.tiny.append(hash, tiny, ids) {
            return Ok(());
        }
        // The other table has tiny words of more tokens, and those that were replaced.
        let from = ids.len();
        self.append_longer(word, ids, compute)?;
        self.tiny.keep(hash, tiny, &ids[from..]);
        Ok(())
    }

    fn append_longer<E>(
        &mut self,
        word: TextWord<'_>,
        ids: &mut Vec<u32>,
        compute: impl FnOnce(&mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(short) = ShortWord::of(word) else {
            return self.append_long(word, ids, compute);
        };
        let hash = self.hash(short.first, short.last);
        self.short.append(hash, &short, ids, compute)
    }

    fn append_long<E>(
        &mut self,
        word: TextWord<'_>,
        ids: &mut Vec<u32>,
        compute: impl FnOnce(&mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(long) = LongWord::of(word.as_str().as_bytes()) else {
            return compute(ids);
        };
        let (halves, _) = long.0.as_chunks::<16>();
        let hash = halves.iter().fold(0, |hash, half| {
            let [first, last] = [0, 8].map(|from| eight(half, from));
            self.hash(first ^ hash, last)
        });
        self.long.append(hash, &long, ids, compute)
    }

    /// Multiplies and folds the two numbers, as wyhash does (Wang Yi).
    fn hash(&self, one: u64, other: u64) -> u64 {
        let product = u128::from(one ^ self.seeds[0]) * u128::from(other ^ self.seeds[1]);
        (product >> 64) as u64 ^ product as u64
    }
}

/// Returns the eight bytes from `from` on, which must exist.
fn eight(bytes: &[u8], from: usize) -> u64 {
    u64::from_le_bytes(*bytes[from..].first_chunk().expect("as long as that"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::places::{LONGEST, LONGEST_SHORT};
    use super::*;

    fn compute(words: &WordCache, word: &str, answer: &[u32]) -> (Vec<u32>, bool) {
        let (mut ids, mut is_computed) = (Vec::new(), false);
        let Ok(()) = words.borrow().append(TextWord::whole(word), &mut ids, |ids| {
            is_computed = true;
            ids.extend_from_slice(answer);
            Ok::<_, Infallible>(())
        });
        (ids, is_computed)
    }

    #[test]
    fn a_word_is_computed_once() {
        let words = WordCache::new();
        assert_eq!(compute(&words, " the", &[1, 2]), (vec![1, 2], true));
        assert_eq!(compute(&words, " the", &[3]), (vec![1, 2], false));
        assert_eq!(compute(&words, " th", &[3]), (vec![3], true));
        // A word without tokens is cached too.
        assert_eq!(compute(&words, "x", &[]), (vec![], true));
        assert_eq!(compute(&words, "x", &[5]), (vec![], false));
    }

    #[test]
    fn words_of_all_lengths_are_distinguished() {
        for length in 1..=LONGEST {
            // Each differs from the first in one byte.
            let changed = |at: usize| {
                let bytes: Vec<u8> = (0..length)
                    .map(|index| if index + 1 == at { b'b' } else { b'a' })
                    .collect();
                String::from_utf8(bytes).unwrap()
            };
            let words = WordCache::new();
            for at in 0..=length {
                let (ids, _) = compute(&words, &changed(at), &[at as u32]);
                assert_eq!(ids, [at as u32], "{length}");
            }
        }
        let keys: Vec<_> = ["", "\0", "\0\0", "\0\0\0"]
            .map(|word| ShortWord::of(TextWord::whole(word)))
            .into();
        assert!(keys.iter().enumerate().all(|(at, key)| !keys[..at].contains(key)));
    }

    #[test]
    fn words_with_too_many_letters_or_tokens_are_not_cached() {
        let words = WordCache::new();
        let check = |letters: usize, tokens: usize, kept: bool| {
            let (word, tokens) = ("x".repeat(letters), vec![1; tokens]);
            assert_eq!(compute(&words, &word, &tokens), (tokens.clone(), true));
            assert_eq!(compute(&words, &word, &tokens), (tokens, !kept), "{letters}");
        };
        check(LONGEST_SHORT, MOST_SHORT_TOKENS, true);
        check(LONGEST_SHORT - 1, MOST_SHORT_TOKENS + 1, false);
        check(LONGEST_SHORT + 1, MOST_TOKENS, true);
        check(LONGEST, MOST_TOKENS, true);
        check(LONGEST - 1, MOST_TOKENS + 1, false);
        check(LONGEST + 1, 1, false);
    }

    #[test]
    fn a_tiny_word_is_computed_once_whatever_its_tokens_are() {
        let words = WordCache::new();
        for tokens in [&[][..], &[1], &[1, 2], &[1, 2, 3], &[u32::MAX], &[u32::MAX, 1]] {
            let word = format!(
                "{}",
                tokens.len() * 10 + tokens.iter().filter(|id| **id > 9).count()
            );
            assert_eq!(compute(&words, &word, tokens), (tokens.to_vec(), true));
            assert_eq!(compute(&words, &word, &[7]), (tokens.to_vec(), false));
        }
    }

    #[test]
    fn no_word_gets_the_tokens_of_another() {
        let words = WordCache::new();
        for round in 0..2 {
            for number in 0..100_000_u32 {
                let (ids, is_computed) = compute(&words, &format!("w{number}"), &[number]);
                assert_eq!(ids, [number]);
                assert!(is_computed || round == 1);
            }
        }
    }

    #[test]
    fn texts_at_the_same_time_have_a_table_each() {
        let words = WordCache::new();
        let (mut one, mut other) = (words.borrow(), words.borrow());
        let mut count = 0;
        for table in [&mut one, &mut other] {
            let Ok(()) = table.append(TextWord::whole("x"), &mut Vec::new(), |_| {
                count += 1;
                Ok::<_, Infallible>(())
            });
        }
        assert_eq!(count, 2);
        drop((one, other));
        assert!(!compute(&words, "x", &[]).1, "it was given back");
        assert!(words.idle().len() <= words.most_idle);
    }
}
