//! Word scanner: finds the ends of consecutive words of an ASCII text with one table lookup a byte.
//!
//! A search by the [`Automaton`] starts again at each word, and a processor cannot predict where it ends. In the
//! scanner's table the first step of the next word replaces the end of a search, so the scan has no such branch. It
//! stops where a word has to be searched: before text that is not ASCII, where the longest match ended some bytes ago,
//! and where nothing matches.

use std::collections::HashMap;

use crate::automaton::Automaton;

/// Most ends of one scan.
pub(super) const MOST_ENDS: usize = 64;
/// A word ends before the byte.
const ENDS: u16 = 0b001;
/// The word ends one byte earlier.
const EARLIER: u16 = 0b010;
/// The scan stops before the byte.
const STOPS: u16 = 0b100;
/// Position of the next row in a step.
const ROW: u32 = 3;
/// Largest table: the position of a row has to fit into the upper bits of a step.
const MOST_STEPS: usize = 1 << (u16::BITS - ROW);
/// Number of the pattern of spaces, whose last byte belongs to the next word.
const SPACES: usize = 1;

#[derive(Debug)]
pub(super) struct WordScanner {
    /// Class of each byte: the bytes of a class have the same steps.
    classes: [u8; 256],
    /// Steps by row and class. The first row is that of a word's beginning.
    steps: Vec<u16>,
}

/// State within a word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct ScanState {
    /// State of the automaton.
    state: u16,
    length: WordLength,
    /// The last byte if it is white space, or 0.
    last: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
enum WordLength {
    #[default]
    None,
    One,
    Longer,
}

/// Step of a scan.
#[derive(Debug, Clone, Copy)]
struct ScanStep {
    next: ScanState,
    flags: u16,
}

impl WordScanner {
    /// Builds the table; `None` if it is too large.
    pub(super) fn of(automaton: &Automaton) -> Option<Self> {
        let (mut states, mut rows) = (vec![ScanState::default()], HashMap::new());
        rows.insert(ScanState::default(), 0);
        let mut steps: Vec<[(usize, u16); 128]> = Vec::new();
        while let Some(&state) = states.get(steps.len()) {
            let mut step = |byte: usize| {
                let Some(ScanStep { next, flags }) = state.step(automaton, byte as u8) else {
                    return (0, STOPS);
                };
                let row = *rows.entry(next).or_insert_with(|| {
                    states.push(next);
                    states.len() - 1
                });
                (row, flags)
            };
            steps.push(std::array::from_fn(&mut step));
            if steps.len() > MOST_STEPS {
                return None;
            }
        }
        Self::by_class(&steps)
    }

    /// Joins the bytes that have equal steps in all rows.
    fn by_class(rows: &[[(usize, u16); 128]]) -> Option<Self> {
        let column = |byte: usize| rows.iter().map(move |row| row[byte]);
        let mut members: Vec<usize> = Vec::new();
        let mut classes = [0; 256];
        for (byte, class) in classes.iter_mut().take(128).enumerate() {
            let known = members.iter().position(|other| column(*other).eq(column(byte)));
            let index = known.unwrap_or_else(|| {
                members.push(byte);
                members.len() - 1
            });
            *class = index as u8;
        }
        // The last class is that of the bytes that are not ASCII.
        classes[128..].fill(members.len() as u8);
        let width = members.len() + 1;
        let steps = rows.iter().flat_map(|row| {
            let ascii = members.iter().map(|byte| row[*byte]);
            ascii
                .chain([(0, STOPS)])
                .map(|(next, flags)| ((next * width) << ROW) as u16 | flags)
        });
        (rows.len() * width <= MOST_STEPS).then(|| Self {
            classes,
            steps: steps.collect(),
        })
    }

    /// Writes the ends of the words from `from` on, where a word begins, and returns their number. The word after them
    /// has to be searched, unless the number is [`MOST_ENDS`].
    #[inline]
    pub(super) fn scan(&self, text: &[u8], from: usize, ends: &mut [usize; MOST_ENDS]) -> usize {
        let (mut row, mut count) = (0, 0);
        for (at, byte) in text.iter().enumerate().skip(from) {
            let class = usize::from(self.classes[usize::from(*byte)]);
            let (step, Some(end)) = (self.steps[row + class], ends.get_mut(count)) else {
                break;
            };
            if step & STOPS != 0 {
                break;
            }
            *end = at - usize::from((step & EARLIER) / EARLIER);
            count += usize::from(step & ENDS);
            row = usize::from(step >> ROW);
        }
        count
    }
}

impl ScanState {
    /// Returns the step by a byte; `None` if the word has to be searched.
    fn step(self, automaton: &Automaton, byte: u8) -> Option<ScanStep> {
        if let Some(next) = self.longer(automaton, byte) {
            return Some(ScanStep { next, flags: 0 });
        }
        let ended = automaton.ended(self.state, byte)?;
        let start = Self::default();
        if ended != SPACES || self.length == WordLength::One {
            let next = start.longer(automaton, byte)?;
            return Some(ScanStep { next, flags: ENDS });
        }
        let last = start.longer(automaton, self.last)?;
        Some(ScanStep {
            next: last.longer(automaton, byte)?,
            flags: ENDS | EARLIER,
        })
    }

    /// Returns the state if the word continues with the byte.
    fn longer(self, automaton: &Automaton, byte: u8) -> Option<Self> {
        let is_space = byte.is_ascii_whitespace() || byte == b'\x0b';
        Some(Self {
            state: automaton.next(self.state, byte)?,
            length: match self.length {
                WordLength::None => WordLength::One,
                WordLength::One | WordLength::Longer => WordLength::Longer,
            },
            last: if is_space { byte } else { 0 },
        })
    }
}
