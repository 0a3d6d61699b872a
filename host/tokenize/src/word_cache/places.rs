//! Short and long words, two in each place of their tables.

use super::eight;
use crate::split::TextWord;

/// Pairs of a table of short words, and of long ones: 256 and 128 KiB.
pub(super) const SHORT_PAIRS: usize = 4096;
pub(super) const LONG_PAIRS: usize = 1024;
/// Longest cached word, in bytes; longer ones rarely repeat.
pub(super) const LONGEST: usize = 31;
pub(super) const LONGEST_SHORT: usize = 15;
/// Most tokens of a cached word.
pub(super) const MOST_TOKENS: usize = 7;
pub(super) const MOST_SHORT_TOKENS: usize = 3;

/// A word's first eight bytes, and the last eight of a longer one with the length in the lowest byte: unique per word.
/// That byte of the last eight is among the first. All zero means empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ShortWord {
    pub(super) first: u64,
    pub(super) last: u64,
}

/// A word's bytes, zeros, and its length. All zero means empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LongWord(pub(super) [u8; LONGEST + 1]);

#[derive(Debug)]
pub(super) struct PlaceTable<K, const TOKENS: usize, const PAIRS: usize>(Box<[PlacePair<K, TOKENS>]>);

/// Two words, aligned to a cache line: the short ones fill one, the long ones one each.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct PlacePair<K, const TOKENS: usize>([WordPlace<K, TOKENS>; 2]);

#[derive(Debug, Clone, Copy)]
struct WordPlace<K, const TOKENS: usize> {
    key: K,
    ids: [u32; TOKENS],
    count: u8,
}

const _: () = assert!(size_of::<PlacePair<ShortWord, MOST_SHORT_TOKENS>>() == 64);
const _: () = assert!(size_of::<PlacePair<LongWord, MOST_TOKENS>>() == 128);

impl<K: Copy + Default + PartialEq, const TOKENS: usize, const PAIRS: usize> PlaceTable<K, TOKENS, PAIRS> {
    pub(super) fn new() -> Self {
        let none = WordPlace {
            key: K::default(),
            ids: [0; TOKENS],
            count: 0,
        };
        Self(vec![PlacePair([none; 2]); PAIRS].into_boxed_slice())
    }

    #[inline]
    pub(super) fn append<E>(
        &mut self,
        hash: u64,
        key: &K,
        ids: &mut Vec<u32>,
        compute: impl FnOnce(&mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let pair = &mut self.0[hash as usize % PAIRS].0;
        for place in pair.iter() {
            if place.key == *key {
                // One at a time: nearly always there is only one.
                for id in place.ids.iter().take(place.count.into()) {
                    ids.push(*id);
                }
                return Ok(());
            }
        }
        let from = ids.len();
        compute(ids)?;
        let tokens = &ids[from..];
        if tokens.len() <= TOKENS {
            let mut kept = WordPlace {
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

impl ShortWord {
    /// Returns `None` for a word that is too long.
    #[inline]
    pub(super) fn of(word: TextWord<'_>) -> Option<Self> {
        let length = word.length();
        let last = match length {
            0..8 => 0,
            8..=LONGEST_SHORT => eight(word.as_str().as_bytes(), length - 8) & !0xff,
            _ => return None,
        };
        Some(Self {
            first: word.first_eight(),
            last: last | length as u64,
        })
    }
}

impl LongWord {
    pub(super) fn of(word: &[u8]) -> Option<Self> {
        let mut text = [0; LONGEST + 1];
        text[..LONGEST].get_mut(..word.len())?.copy_from_slice(word);
        text[LONGEST] = word.len() as u8;
        Some(Self(text))
    }
}
