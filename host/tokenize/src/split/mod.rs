//! Word splitter: splits texts by the patterns of byte-level tokenizers, with the tokenizer's own engine (Oniguruma)
//! or, in ASCII, with an automaton that finds the same words in a tenth of the time.
//!
//! The automaton is built from the pattern. In ASCII, Unicode classes are a few ranges, so it is small. A pattern that
//! the two engines could interpret differently has no automaton (see [`ascii_form`]). It stops at the first byte that
//! is not ASCII, and the engine finds that word.

mod scanner;
mod word;

use scanner::{MOST_ENDS, WordScanner};
use tokenizers::utils::SysRegex;

use crate::automaton::{Automaton, LongestMatch};
pub(crate) use word::TextWord;

/// End of patterns that leave a word's space to the word: white space up to the last character before other text.
const SPACES: &str = r"|\s+(?!\S)|\s+";

/// A splitting step: matches become words, and so does the text between them.
#[derive(Debug)]
pub(crate) struct WordSplitter {
    engine: SysRegex,
    ascii: Option<AsciiPatterns>,
}

/// The pattern's words and, as the second pattern, [`SPACES`].
#[derive(Debug)]
struct AsciiPatterns {
    automaton: Automaton,
    /// Present unless its table would be too large.
    scanner: Option<WordScanner>,
}

/// Result at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MatchResult {
    /// A match up to here.
    Match(usize),
    Nothing,
    /// Undecided in ASCII alone.
    Unknown,
}

impl WordSplitter {
    pub(crate) fn new(pattern: &str) -> Result<Self, tokenizers::Error> {
        Ok(Self {
            engine: SysRegex::new(pattern)?,
            ascii: AsciiPatterns::of(pattern),
        })
    }

    /// Returns `true` if a word that ends in an ASCII letter always ends before a space.
    pub(crate) fn ends_words_at_spaces(&self) -> bool {
        let ascii = self.ascii.as_ref();
        ascii.is_some_and(|ascii| ascii.automaton.ends_between(letters(), b' '))
    }

    /// Returns `true` if no match contains ASCII letters or spaces.
    pub(crate) fn passes_words_on(&self) -> bool {
        let ascii = self.ascii.as_ref();
        ascii.is_some_and(|ascii| ascii.automaton.has_none_of(letters().chain([b' '])))
    }

    /// Calls `show` with the words of a text in order, none of them empty.
    pub(crate) fn each<'t, E>(
        &self,
        text: &'t str,
        mut show: impl FnMut(TextWord<'t>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(ascii) = &self.ascii else {
            return self.each_by_engine(text, show);
        };
        let word = |start, end| TextWord::new(text, start..end);
        let (mut from, mut ends) = (0, [0; MOST_ENDS]);
        loop {
            let scanner = ascii.scanner.as_ref();
            let count = scanner.map_or(0, |scanner| scanner.scan(text.as_bytes(), from, &mut ends));
            for end in &ends[..count] {
                show(word(from, *end))?;
                from = *end;
            }
            if count == MOST_ENDS {
                continue;
            }
            let Some((start, end)) = self.find(ascii, text, from) else {
                break;
            };
            if from < start {
                show(word(from, start))?;
            }
            show(word(start, end))?;
            from = end;
        }
        if from < text.len() {
            show(word(from, text.len()))
        } else {
            Ok(())
        }
    }

    /// Calls `show` with the words that the tokenizer's own engine finds.
    fn each_by_engine<'t, E>(
        &self,
        text: &'t str,
        mut show: impl FnMut(TextWord<'t>) -> Result<(), E>,
    ) -> Result<(), E> {
        let word = |start, end| TextWord::new(text, start..end);
        let mut from = 0;
        for (start, end) in self.engine.find_iter(text) {
            if from < start {
                show(word(from, start))?;
            }
            if start < end {
                show(word(start, end))?;
            }
            from = end;
        }
        if from < text.len() {
            show(word(from, text.len()))
        } else {
            Ok(())
        }
    }

    /// Returns the first non-empty match from a position on.
    fn find(&self, ascii: &AsciiPatterns, text: &str, from: usize) -> Option<(usize, usize)> {
        let mut at = from;
        while at < text.len() {
            match ascii.at(text.as_bytes(), at) {
                MatchResult::Match(end) => return Some((at, end)),
                MatchResult::Nothing => at += 1,
                MatchResult::Unknown => {
                    let (start, end) = self.engine.find_iter(&text[at..]).next()?;
                    return Some((at + start, at + end));
                }
            }
        }
        None
    }
}

impl AsciiPatterns {
    fn of(pattern: &str) -> Option<Self> {
        let (words, spaces) = match pattern.strip_suffix(SPACES) {
            Some(words) => (words, Some(r"\s+")),
            None => (pattern, None),
        };
        let patterns: Vec<String> = std::iter::once(ascii_form(words)?)
            .chain(spaces.map(str::to_owned))
            .collect();
        let automaton = Automaton::of(&patterns)?;
        // An empty match is not supported: the search continues at the end of each match.
        (automaton.longest(b"", 0) == LongestMatch::Nothing).then(|| Self {
            scanner: WordScanner::of(&automaton),
            automaton,
        })
    }

    /// Returns the match that begins at a position.
    fn at(&self, text: &[u8], from: usize) -> MatchResult {
        match self.automaton.longest(text, from) {
            // The last space of several belongs to the next word.
            LongestMatch::Match { end, pattern: 1 } if end < text.len() && end - from > 1 => {
                MatchResult::Match(end - 1)
            }
            LongestMatch::Match { end, .. } => MatchResult::Match(end),
            LongestMatch::Nothing => MatchResult::Nothing,
            LongestMatch::Unknown => MatchResult::Unknown,
        }
    }
}

fn letters() -> impl Iterator<Item = u8> {
    (b'A'..=b'Z').chain(b'a'..=b'z')
}

/// Converts a pattern of Oniguruma (in Ruby's syntax) to one of bytes that matches the same in ASCII. `None` if it has
/// anything but groups, classes, alternatives and single quantifiers, which mean the same in both.
fn ascii_form(pattern: &str) -> Option<String> {
    /// A byte outside ASCII, for everything that is not ASCII.
    const NOWHERE: &str = r"\x80";
    let mut out = String::new();
    let mut rest = pattern.chars().peekable();
    let (mut in_class, mut in_insensitive, mut after_quantifier) = (false, false, false);
    while let Some(c) = rest.next() {
        let is_quantifier = !in_class && matches!(c, '+' | '*' | '?' | '{');
        // Possessive in one engine, repeated in the other.
        if is_quantifier && after_quantifier {
            return None;
        }
        after_quantifier = is_quantifier && c != '{' || (!in_class && c == '}');
        match c {
            _ if !c.is_ascii() => match in_insensitive {
                true => return None,
                false => out.push_str(NOWHERE),
            },
            '\\' if in_insensitive => return None,
            '\\' => match rest.next()? {
                'p' => {
                    let name: String = rest
                        .by_ref()
                        .skip_while(|c| *c == '{')
                        .take_while(|c| *c != '}')
                        .collect();
                    let ranges = match ascii_category(&name)? {
                        "" => NOWHERE,
                        ranges => ranges,
                    };
                    if in_class {
                        out.push_str(ranges);
                    } else {
                        out.extend(["[", ranges, "]"]);
                    }
                }
                c @ ('r' | 'n' | 't' | 's' | 'S' | 'd' | 'w') => out.extend(['\\', c]),
                // Word boundaries in one of the engines.
                '<' | '>' => return None,
                c if c.is_ascii_punctuation() => out.extend(['\\', c]),
                _ => return None,
            },
            // Nested classes and operators on classes.
            '[' | '&' | '-' | '~' if in_class && (c == '[' || rest.peek() == Some(&c)) => return None,
            '[' => {
                in_class = true;
                out.push('[');
                out.extend(rest.next_if_eq(&'^'));
                if rest.peek() == Some(&']') {
                    return None;
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '(' if !in_class && rest.peek() == Some(&'?') => {
                rest.next();
                let flag = rest.next_if_eq(&'i');
                if in_insensitive || rest.next() != Some(':') {
                    return None;
                }
                in_insensitive = flag.is_some();
                out.push_str(if in_insensitive { "(?i:" } else { "(?:" });
            }
            // No groups in such a group: it ends at the first closing bracket.
            '(' if !in_class && in_insensitive => return None,
            ')' if !in_class => {
                in_insensitive = false;
                out.push(')');
            }
            '.' | '^' | '$' if !in_class => return None,
            c => out.push(c),
        }
    }
    (!in_class).then_some(out)
}

/// Returns the ASCII part of a Unicode category as ranges of a class.
fn ascii_category(name: &str) -> Option<&'static str> {
    Some(match name {
        "L" => "A-Za-z",
        "Lu" => "A-Z",
        "Ll" => "a-z",
        "N" | "Nd" => "0-9",
        "P" => r##"!-#%-*,-/:;?@\[-\]_{}"##,
        "S" => r"$+<->\^`|~",
        "Lt" | "Lm" | "Lo" | "M" | "Mn" => "",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
