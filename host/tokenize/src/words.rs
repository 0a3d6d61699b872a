//! Words and their tokens, as met before: most of a text is words that were there a moment ago. Tables of a fixed size, so that
//! nothing has to be counted or thrown out; a word whose place another word took is asked for again.
//!
//! A look has to cost less than what it saves, so a text has a table to itself: no lock a word. Short words, which nearly all are, are
//! two numbers and share a cache line with the other word that may take their place.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// Pairs of places of a table, for short words and for long ones: 512 and 160 KiB.
const SHORT_PAIRS: usize = 8192;
const LONG_PAIRS: usize = 1024;
/// Longest word that is kept, in bytes; longer ones seldom come again.
const LONGEST: usize = 32;
const LONGEST_SHORT: usize = 16;
/// Most tokens of a word that is kept.
const MOST_TOKENS: usize = 8;
const MOST_SHORT_TOKENS: usize = 3;

/// The words of one tokenizer: a table for each text that is tokenised at a time.
#[derive(Debug)]
pub(crate) struct Words {
    /// Those that no text has now. Held to take one or give it back.
    idle: Mutex<Vec<Table>>,
    most_idle: usize,
    /// Others in each process: nobody outside can make words that take each other's places.
    seeds: [u64; 2],
}

/// A table of one text, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Borrowed<'w> {
    words: &'w Words,
    /// There until the drop.
    table: Option<Table>,
}

#[derive(Debug)]
pub(crate) struct Table {
    seeds: [u64; 2],
    short: Places<Short, MOST_SHORT_TOKENS, SHORT_PAIRS>,
    long: Places<Long, MOST_TOKENS, LONG_PAIRS>,
}

/// A word as its first and last eight bytes, which overlap, and its length: no two words are the same. Without a length there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Short {
    first: u64,
    last: u64,
    length: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Long {
    text: [u8; LONGEST],
    length: u8,
}

#[derive(Debug)]
struct Places<K, const TOKENS: usize, const PAIRS: usize>(Box<[[Place<K, TOKENS>; 2]]>);

#[derive(Debug, Clone, Copy)]
struct Place<K, const TOKENS: usize> {
    key: K,
    ids: [u32; TOKENS],
    count: u8,
}

impl Words {
    pub(crate) fn new() -> Self {
        Self {
            idle: Mutex::default(),
            most_idle: available_parallelism().map_or(1, usize::from),
            seeds: [0, 1].map(|which| RandomState::new().hash_one(which)),
        }
    }

    /// A table for a text: the one that was used last, which is likely to be near.
    pub(crate) fn borrow(&self) -> Borrowed<'_> {
        let table = self.idle().pop();
        Borrowed {
            words: self,
            table: Some(table.unwrap_or_else(|| Table::new(self.seeds))),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Table>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Borrowed<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        self.table.as_ref().expect("it is there until the drop")
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        self.table.as_mut().expect("it is there until the drop")
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let mut idle = self.words.idle();
        if idle.len() < self.words.most_idle {
            idle.extend(self.table.take());
        }
    }
}

impl Table {
    fn new(seeds: [u64; 2]) -> Self {
        Self {
            seeds,
            short: Places::new(),
            long: Places::new(),
        }
    }

    /// Appends the tokens of a word, which is not empty: those it had before, else what `ask` appends.
    #[inline]
    pub(crate) fn append<E>(
        &mut self,
        word: &str,
        ids: &mut Vec<u32>,
        ask: impl FnOnce(&mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(short) = Short::of(word.as_bytes()) else {
            return self.append_long(word.as_bytes(), ids, ask);
        };
        let hash = self.hash(short.first, short.last ^ u64::from(short.length) << 56);
        self.short.append(hash, &short, ids, ask)
    }

    fn append_long<E>(
        &mut self,
        word: &[u8],
        ids: &mut Vec<u32>,
        ask: impl FnOnce(&mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(long) = Long::of(word) else {
            return ask(ids);
        };
        let (halves, _) = long.text.as_chunks::<16>();
        let hash = halves.iter().fold(long.length.into(), |hash, half| {
            let [first, last] = [0, 8].map(|from| eight(half, from));
            self.hash(first ^ hash, last)
        });
        self.long.append(hash, &long, ids, ask)
    }

    /// The two numbers multiplied and folded, as wyhash does (Wang Yi).
    fn hash(&self, one: u64, other: u64) -> u64 {
        let product = u128::from(one ^ self.seeds[0]) * u128::from(other ^ self.seeds[1]);
        (product >> 64) as u64 ^ product as u64
    }
}

impl<K: Copy + Default + PartialEq, const TOKENS: usize, const PAIRS: usize> Places<K, TOKENS, PAIRS> {
    fn new() -> Self {
        let none = Place {
            key: K::default(),
            ids: [0; TOKENS],
            count: 0,
        };
        Self(vec![[none; 2]; PAIRS].into_boxed_slice())
    }

    #[inline]
    fn append<E>(
        &mut self,
        hash: u64,
        key: &K,
        ids: &mut Vec<u32>,
        ask: impl FnOnce(&mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let pair = &mut self.0[hash as usize % PAIRS];
        for place in pair.iter() {
            if place.key == *key {
                // One at a time: nearly always there is one.
                for id in place.ids.iter().take(place.count.into()) {
                    ids.push(*id);
                }
                return Ok(());
            }
        }
        let from = ids.len();
        ask(ids)?;
        let tokens = &ids[from..];
        if tokens.len() <= TOKENS {
            let mut kept = Place {
                key: *key,
                ids: [0; TOKENS],
                count: tokens.len() as u8,
            };
            kept.ids[..tokens.len()].copy_from_slice(tokens);
            pair[1] = pair[0];
            pair[0] = kept;
        }
        Ok(())
    }
}

impl Short {
    /// None: it is too long.
    #[inline]
    fn of(word: &[u8]) -> Option<Self> {
        let length = word.len();
        let (first, last) = match length {
            0 => (0, 0),
            1..=3 => {
                let ends = [word[0], word[length / 2], word[length - 1]];
                (u64::from(u32::from_le_bytes([ends[0], ends[1], ends[2], 0])), 0)
            }
            4..=7 => (four(word, 0), four(word, length - 4)),
            8..=LONGEST_SHORT => (eight(word, 0), eight(word, length - 8)),
            _ => return None,
        };
        Some(Self {
            first,
            last,
            length: length as u8,
        })
    }
}

impl Long {
    fn of(word: &[u8]) -> Option<Self> {
        let mut text = [0; LONGEST];
        text.get_mut(..word.len())?.copy_from_slice(word);
        Some(Self {
            text,
            length: word.len() as u8,
        })
    }
}

/// The four bytes from there, which there are.
fn four(bytes: &[u8], from: usize) -> u64 {
    let chunk = bytes[from..].first_chunk().expect("as long as that");
    u32::from_le_bytes(*chunk).into()
}

/// The eight bytes from there, which there are.
fn eight(bytes: &[u8], from: usize) -> u64 {
    u64::from_le_bytes(*bytes[from..].first_chunk().expect("as long as that"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn ask(words: &Words, word: &str, answer: &[u32]) -> (Vec<u32>, bool) {
        let (mut ids, mut asked) = (Vec::new(), false);
        let Ok(()) = words.borrow().append(word, &mut ids, |ids| {
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
    fn words_of_all_lengths_are_told_apart() {
        for length in 1..=LONGEST {
            // Each differs from the first in one byte.
            let changed = |at: usize| {
                let bytes: Vec<u8> = (0..length)
                    .map(|index| if index + 1 == at { b'b' } else { b'a' })
                    .collect();
                String::from_utf8(bytes).unwrap()
            };
            let words = Words::new();
            for at in 0..=length {
                let (ids, _) = ask(&words, &changed(at), &[at as u32]);
                assert_eq!(ids, [at as u32], "{length}");
            }
        }
        let keys: Vec<_> = ["", "\0", "\0\0", "\0\0\0"]
            .map(|word| Short::of(word.as_bytes()))
            .into();
        assert!(keys.iter().enumerate().all(|(at, key)| !keys[..at].contains(key)));
    }

    #[test]
    fn what_is_too_long_is_asked_for_each_time() {
        let words = Words::new();
        let check = |letters: usize, tokens: usize, kept: bool| {
            let (word, tokens) = ("x".repeat(letters), vec![1; tokens]);
            assert_eq!(ask(&words, &word, &tokens), (tokens.clone(), true));
            assert_eq!(ask(&words, &word, &tokens), (tokens, !kept), "{letters}");
        };
        check(LONGEST_SHORT, MOST_SHORT_TOKENS, true);
        check(LONGEST_SHORT - 1, MOST_SHORT_TOKENS + 1, false);
        check(LONGEST_SHORT + 1, MOST_TOKENS, true);
        check(LONGEST, MOST_TOKENS, true);
        check(LONGEST - 1, MOST_TOKENS + 1, false);
        check(LONGEST + 1, 1, false);
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

    #[test]
    fn texts_at_the_same_time_have_a_table_each() {
        let words = Words::new();
        let (mut one, mut other) = (words.borrow(), words.borrow());
        let mut count = 0;
        for table in [&mut one, &mut other] {
            let Ok(()) = table.append("x", &mut Vec::new(), |_| {
                count += 1;
                Ok::<_, Infallible>(())
            });
        }
        assert_eq!(count, 2);
        drop((one, other));
        assert!(!ask(&words, "x", &[]).1, "it was given back");
        assert!(words.idle().len() <= words.most_idle);
    }
}
