//! Texts as the patterns of byte-level tokenizers split them into words, found by the very engine that the tokenizer uses
//! (Oniguruma) or, where nothing but ASCII is looked at, by an automaton that finds the same in a tenth of the time.
//!
//! The automaton is made of the pattern itself. In ASCII the classes of Unicode are a few ranges, so it is small; a pattern with anything
//! that the two engines could understand otherwise gets none (see [`ascii_form`]). It stops at the first byte that is not ASCII and
//! leaves that word to the engine.

use tokenizers::utils::SysRegex;

use crate::automaton::{Automaton, Longest};

/// How patterns end that leave a word's space to the word: white space up to the last character before something else.
const SPACES: &str = r"|\s+(?!\S)|\s+";

/// One step of the splitting: what matches is a word, and what stands between matches is one too.
#[derive(Debug)]
pub(crate) struct Splitter {
    engine: SysRegex,
    ascii: Option<Ascii>,
}

/// The pattern's words, and after them, as the second pattern, [`SPACES`].
#[derive(Debug)]
struct Ascii(Automaton);

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// A match, up to here.
    Match(usize),
    Nothing,
    /// Not to be told without looking at more than ASCII.
    Unknown,
}

impl Splitter {
    pub(crate) fn new(pattern: &str) -> Result<Self, tokenizers::Error> {
        Ok(Self {
            engine: SysRegex::new(pattern)?,
            ascii: Ascii::of(pattern),
        })
    }

    /// Whether a word that ends in an ASCII letter always ends before a space.
    pub(crate) fn ends_words_at_spaces(&self) -> bool {
        let ascii = self.ascii.as_ref();
        ascii.is_some_and(|ascii| ascii.0.ends_between(letters(), b' '))
    }

    /// Whether ASCII letters and spaces are in none of its matches.
    pub(crate) fn passes_words_on(&self) -> bool {
        let ascii = self.ascii.as_ref();
        ascii.is_some_and(|ascii| ascii.0.has_none_of(letters().chain([b' '])))
    }

    /// Shows the words of a text in order, none of them empty.
    pub(crate) fn each<'t, E>(
        &self,
        text: &'t str,
        mut show: impl FnMut(&'t str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = 0;
        let mut show_match = |(start, end): (usize, usize)| {
            if from < start {
                show(&text[from..start])?;
            }
            from = end;
            if start < end {
                show(&text[start..end])
            } else {
                Ok(())
            }
        };
        match &self.ascii {
            Some(ascii) => {
                let mut at = 0;
                while let Some(found) = self.find(ascii, text, at) {
                    at = found.1;
                    show_match(found)?;
                }
            }
            None => self.engine.find_iter(text).try_for_each(show_match)?,
        }
        if from < text.len() {
            show(&text[from..])
        } else {
            Ok(())
        }
    }

    /// The first match from a place on, which is not empty.
    fn find(&self, ascii: &Ascii, text: &str, from: usize) -> Option<(usize, usize)> {
        let mut at = from;
        while at < text.len() {
            match ascii.at(text.as_bytes(), at) {
                Found::Match(end) => return Some((at, end)),
                Found::Nothing => at += 1,
                Found::Unknown => {
                    let (start, end) = self.engine.find_iter(&text[at..]).next()?;
                    return Some((at + start, at + end));
                }
            }
        }
        None
    }
}

impl Ascii {
    fn of(pattern: &str) -> Option<Self> {
        let (words, spaces) = match pattern.strip_suffix(SPACES) {
            Some(words) => (words, Some(r"\s+")),
            None => (pattern, None),
        };
        let patterns: Vec<String> = std::iter::once(ascii_form(words)?)
            .chain(spaces.map(str::to_owned))
            .collect();
        let ascii = Self(Automaton::of(&patterns)?);
        // Nothing may be a match: the search goes on from the end of each.
        (ascii.0.longest(b"", 0) == Longest::Nothing).then_some(ascii)
    }

    /// The match that begins at a place.
    fn at(&self, text: &[u8], from: usize) -> Found {
        match self.0.longest(text, from) {
            // The last one of several belongs to the word that follows.
            Longest::Match { end, pattern: 1 } if end < text.len() && end - from > 1 => Found::Match(end - 1),
            Longest::Match { end, .. } => Found::Match(end),
            Longest::Nothing => Found::Nothing,
            Longest::Unknown => Found::Unknown,
        }
    }
}

fn letters() -> impl Iterator<Item = u8> {
    (b'A'..=b'Z').chain(b'a'..=b'z')
}

/// A pattern of Oniguruma (in Ruby's syntax) as one of bytes that matches the same in ASCII; none where it has anything but
/// groups, classes, alternatives and single quantifiers, which mean the same to both.
fn ascii_form(pattern: &str) -> Option<String> {
    /// A byte that is nowhere in ASCII, for whatever is not.
    const NOWHERE: &str = r"\x80";
    let mut out = String::new();
    let mut rest = pattern.chars().peekable();
    let (mut in_class, mut in_insensitive, mut after_quantifier) = (false, false, false);
    while let Some(c) = rest.next() {
        let is_quantifier = !in_class && matches!(c, '+' | '*' | '?' | '{');
        // Possessive for one, repeated for the other.
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
                // Ends of words to one of the two.
                '<' | '>' => return None,
                c if c.is_ascii_punctuation() => out.extend(['\\', c]),
                _ => return None,
            },
            // Classes in classes, and operators on them.
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
            // No groups in such a group: its end is the first that comes.
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

/// What of ASCII is in a category of Unicode, as ranges of a class.
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
