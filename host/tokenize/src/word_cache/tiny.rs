//! Tiny words: four of them fill a cache line.

use crate::split::TextWord;

/// Sets of a table: 256 KiB.
const SETS: usize = 4096;
/// Longest tiny word, in bytes.
const LONGEST: usize = 7;
/// Absent token. A word with a token of this id is not kept.
const NO_TOKEN: u32 = u32::MAX;

/// A word's bytes, with its length in the highest one. 0 is no word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TinyWord(pub(super) u64);

/// Words of at most two tokens.
#[derive(Debug)]
pub(super) struct TinyTable(Box<[TinySet]>);

/// Four words; the one that was kept last is the first.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct TinySet {
    words: [TinyWord; 4],
    ids: [[u32; 2]; 4],
}

const _: () = assert!(size_of::<TinySet>() == 64);

impl TinyWord {
    /// Returns `None` for a word that is too long, or empty.
    #[inline]
    pub(super) fn of(word: TextWord<'_>) -> Option<Self> {
        let length = word.length();
        if !(1..=LONGEST).contains(&length) {
            return None;
        }
        Some(Self(word.first_eight() | (length as u64) << 56))
    }
}

impl TinyTable {
    pub(super) fn new() -> Self {
        let none = TinySet {
            words: [TinyWord::default(); 4],
            ids: [[NO_TOKEN; 2]; 4],
        };
        Self(vec![none; SETS].into_boxed_slice())
    }

    /// Appends the tokens of a word. Returns `false` if it is not kept.
    #[inline]
    pub(super) fn append(&self, hash: u64, word: TinyWord, ids: &mut Vec<u32>) -> bool {
        let set = &self.0[hash as usize % SETS];
        // All are compared: the place of a word in its set cannot be predicted.
        let mut found = set.words.len();
        for (place, other) in set.words.iter().enumerate() {
            found = if *other == word { place } else { found };
        }
        let Some([first, second]) = set.ids.get(found).copied() else {
            return false;
        };
        // Without a branch: a processor cannot predict the number of tokens.
        let absent = usize::from(first == NO_TOKEN) + usize::from(second == NO_TOKEN);
        ids.extend_from_slice(&[first, second]);
        ids.truncate(ids.len() - absent);
        true
    }

    /// Keeps a word in the place of the oldest of its set, unless it has too many tokens.
    pub(super) fn keep(&mut self, hash: u64, word: TinyWord, tokens: &[u32]) {
        let mut ids = [NO_TOKEN; 2];
        if tokens.len() > ids.len() || tokens.contains(&NO_TOKEN) {
            return;
        }
        ids[..tokens.len()].copy_from_slice(tokens);
        let set = &mut self.0[hash as usize % SETS];
        set.words.rotate_right(1);
        set.ids.rotate_right(1);
        set.words[0] = word;
        set.ids[0] = ids;
    }
}
