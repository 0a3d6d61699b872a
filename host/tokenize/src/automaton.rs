//! ASCII automaton: finds the longest match of some patterns at a position, in ASCII text. It is a table with a row
//! per state and an entry per byte, so a byte costs one lookup and one test for a match. `regex-automata` builds the
//! automaton; its own search also supports other text and costs five times as much.

use std::collections::HashMap;

use regex_automata::Anchored;
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::util::{start, syntax};

/// Largest automaton of `regex-automata`, in bytes; those of known patterns take some 10,000.
const LARGEST: usize = 1 << 20;
/// Most states: a row has to fit in the upper bits of a step.
const MOST_STATES: usize = 1 << 12;
/// Most patterns: the pattern's number must fit into the lower bits.
const MOST_PATTERNS: usize = 7;
/// Lower bits of a step: the number plus 1 of a pattern that ended before the byte.
const ENDED: u16 = 0b0111;
/// No longer match is possible.
const OVER: u16 = 0b1000;
/// Position of the next state in a step.
const STATE: u32 = 4;

/// Patterns that are searched together.
#[derive(Debug)]
pub(crate) struct Automaton {
    /// Steps by state and byte: the next state from [`STATE`] on, the ended pattern below it. The first state is 0.
    steps: Vec<[u16; 128]>,
    /// Pattern of each state that ends at the end of the text.
    ends: Vec<u16>,
}

/// Result of a search at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LongestMatch {
    /// A match of this pattern up to `end`; of several equal matches the first pattern's.
    Match {
        end: usize,
        pattern: usize,
    },
    Nothing,
    /// Undecided: the text is not ASCII here.
    Unknown,
}

impl Automaton {
    /// Builds the automaton; `None` for unsupported or too large patterns.
    pub(crate) fn of(patterns: &[String]) -> Option<Self> {
        let config = dense::Config::new()
            .start_kind(StartKind::Anchored)
            .accelerate(false)
            .dfa_size_limit(Some(LARGEST))
            .determinize_size_limit(Some(LARGEST));
        let dfa = dense::Builder::new()
            .configure(config)
            .syntax(syntax::Config::new().unicode(false).utf8(false))
            .build_many(patterns)
            .ok()?;
        let start = dfa
            .start_state(&start::Config::new().anchored(Anchored::Yes))
            .ok()?;
        (patterns.len() <= MOST_PATTERNS).then(|| Self::flatten(&dfa, start))?
    }

    /// Copies all states that are reachable by ASCII.
    fn flatten(dfa: &dense::DFA<Vec<u32>>, start: StateID) -> Option<Self> {
        let mut states = vec![start];
        let mut rows = HashMap::from([(start, 0_u16)]);
        let mut this = Self {
            steps: Vec::new(),
            ends: Vec::new(),
        };
        while let Some(&state) = states.get(this.steps.len()) {
            let mut step = |byte: usize| {
                let next = dfa.next_state(state, byte as u8);
                let row = *rows.entry(next).or_insert_with(|| {
                    states.push(next);
                    states.len() as u16 - 1
                });
                let over = if is_over(dfa, next) { OVER } else { 0 };
                row << STATE | over | ended(dfa, next)
            };
            this.steps.push(std::array::from_fn(&mut step));
            this.ends.push(ended(dfa, dfa.next_eoi_state(state)));
            if states.len() > MOST_STATES {
                return None;
            }
        }
        Some(this)
    }

    /// Returns `true` if each byte of `last` is always in a match of the first pattern that ends before `next`,
    /// whatever surrounds them. A search from any position ends there, or before `last`, where another match begins.
    pub(crate) fn ends_between(&self, mut last: impl Iterator<Item = u8>, next: u8) -> bool {
        let behind = |row: &[u16; 128], last: u8| {
            let step = row[usize::from(last)];
            let state = usize::from(step >> STATE);
            (step & OVER == 0).then(|| self.steps[state][usize::from(next)] & (ENDED | OVER))
        };
        let ends = OVER | 1;
        last.all(|last| {
            let mut all = self.steps.iter().filter_map(|row| behind(row, last));
            behind(&self.steps[0], last) == Some(ends) && all.all(|step| step == ends || step == OVER)
        })
    }

    /// Returns `true` if no match contains any of these bytes.
    pub(crate) fn has_none_of(&self, mut bytes: impl Iterator<Item = u8>) -> bool {
        bytes.all(|byte| self.steps.iter().all(|row| row[usize::from(byte)] & OVER != 0))
    }

    /// Returns the state after one more byte of ASCII; `None` if no longer match is possible.
    pub(crate) fn next(&self, state: u16, byte: u8) -> Option<u16> {
        let step = self.steps[usize::from(state)][usize::from(byte)];
        (step & OVER == 0).then_some(step >> STATE)
    }

    /// Returns the pattern that ends before a byte of ASCII.
    pub(crate) fn ended(&self, state: u16, byte: u8) -> Option<usize> {
        let step = self.steps[usize::from(state)][usize::from(byte)];
        usize::from(step & ENDED).checked_sub(1)
    }

    /// Returns the longest match that begins at a position.
    #[inline]
    pub(crate) fn longest(&self, text: &[u8], from: usize) -> LongestMatch {
        let (mut state, mut last) = (0_usize, LongestMatch::Nothing);
        let found = |end, ended: u16| LongestMatch::Match {
            end,
            pattern: usize::from(ended) - 1,
        };
        for (at, byte) in text.iter().enumerate().skip(from) {
            let Some(step) = self.steps[state].get(usize::from(*byte)) else {
                return LongestMatch::Unknown;
            };
            if step & ENDED != 0 {
                last = found(at, step & ENDED);
            }
            if step & OVER != 0 {
                return last;
            }
            state = usize::from(step >> STATE);
        }
        match self.ends[state] {
            0 => last,
            ended => found(text.len(), ended),
        }
    }
}

/// Returns the number plus 1 of the pattern that ended before the byte leading to a state; 0 for none.
fn ended(dfa: &dense::DFA<Vec<u32>>, state: StateID) -> u16 {
    if dfa.is_match_state(state) {
        dfa.match_pattern(state, 0).as_usize() as u16 + 1
    } else {
        0
    }
}

/// Returns `true` if no match can end after a state.
fn is_over(dfa: &dense::DFA<Vec<u32>>, state: StateID) -> bool {
    (0..=u8::MAX).all(|byte| dfa.is_dead_state(dfa.next_state(state, byte)))
        && ended(dfa, dfa.next_eoi_state(state)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(patterns: &[&str], text: &str, from: usize, expected: LongestMatch) {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let automaton = Automaton::of(&patterns).unwrap();
        assert_eq!(automaton.longest(text.as_bytes(), from), expected, "{text}");
    }

    #[test]
    fn finds_the_longest_match_of_the_first_pattern_that_has_it() {
        let found = |end, pattern| LongestMatch::Match { end, pattern };
        check(&["[a-z]+", r"\s+"], "ab  c", 0, found(2, 0));
        check(&["[a-z]+", r"\s+"], "ab  c", 2, found(4, 1));
        check(&["[a-z]+", r"\s+"], "ab  c", 4, found(5, 0));
        check(&["a|ab", "ab|abc"], "abcd", 0, found(1, 0));
        check(&["ab", "ab"], "ab", 0, found(2, 0));
        check(&["[a-z]+"], "1", 0, LongestMatch::Nothing);
        check(&["[a-z]+"], "ab", 2, LongestMatch::Nothing);
        check(&["[a-z]*"], "", 0, found(0, 0));
    }

    #[test]
    fn a_space_ends_a_match_if_no_pattern_continues_over_it() {
        let check = |pattern: &str, ends: bool, is_apart: bool| {
            let automaton = Automaton::of(&[pattern.to_owned(), r"\s+".to_owned()]).unwrap();
            assert_eq!(automaton.ends_between(b'a'..=b'z', b' '), ends, "{pattern}");
            let only = Automaton::of(&[pattern.to_owned()]).unwrap();
            assert_eq!(only.has_none_of(b"a ".iter().copied()), is_apart, "{pattern}");
        };
        check(" ?[a-z]+", true, false);
        check(" ?[a-z]+|[0-9]", true, false);
        check("'ve|'| ?[a-z]+", true, false);
        check("[a-z]+ ?", false, false);
        check("b c| ?[a-z]+", false, false);
        // A match may be longer; if not, it ends before.
        check("[a-z]+(?: [0-9])?", false, false);
        // Unusual sets of letters.
        check("[a-y]+", false, false);
        check("[0-9]{1,3}", false, true);
        check("[0-9]+a?", false, false);
    }

    #[test]
    fn a_match_that_reaches_a_non_ascii_character_is_unknown() {
        check(&["[a-z]+"], "abé", 0, LongestMatch::Unknown);
        check(&["[a-z]+"], "ab é", 0, LongestMatch::Match { end: 2, pattern: 0 });
        check(&["[a-z]+"], "ab", 0, LongestMatch::Match { end: 2, pattern: 0 });
    }

    #[test]
    fn a_too_large_automaton_is_refused() {
        assert!(Automaton::of(&["(a|b)*a(a|b){13}".to_owned()]).is_none());
        assert!(Automaton::of(&vec!["a".to_owned(); MOST_PATTERNS + 1]).is_none());
    }
}
