//! Words, each with the text around it.

use std::ops::Range;

/// A word and its text. Eight bytes can be read even of a shorter word, because the text goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextWord<'t> {
    text: &'t str,
    start: usize,
    end: usize,
}

impl<'t> TextWord<'t> {
    pub(super) fn new(text: &'t str, word: Range<usize>) -> Self {
        Self {
            text,
            start: word.start,
            end: word.end,
        }
    }

    /// Creates the word that is a whole text.
    pub(crate) fn whole(text: &'t str) -> Self {
        Self::new(text, 0..text.len())
    }

    pub(crate) fn as_str(self) -> &'t str {
        &self.text[self.start..self.end]
    }

    /// Returns the length in bytes.
    pub(crate) fn length(self) -> usize {
        self.end - self.start
    }

    /// Returns the word's first eight bytes, with zeros after its end.
    ///
    /// The length of a word cannot be predicted by a processor, so eight bytes are read whatever it is.
    #[inline]
    pub(crate) fn first_eight(self) -> u64 {
        let rest = &self.text.as_bytes()[self.start..];
        let bytes = match rest.first_chunk() {
            Some(chunk) => u64::from_le_bytes(*chunk),
            None => padded(rest),
        };
        // The shift by 64 of an empty word leaves nothing.
        let unused = 64 - 8 * self.length().min(8) as u32;
        bytes & u64::MAX.checked_shr(unused).unwrap_or(0)
    }
}

/// Returns up to eight bytes, followed by zeros.
#[cold]
fn padded(bytes: &[u8]) -> u64 {
    let reversed = bytes.iter().take(8).rev();
    reversed.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_word_is_read_without_the_text_after_it() {
        let text = "abcdefghijkl";
        for start in 0..text.len() {
            for end in start..=text.len() {
                let word = &text.as_bytes()[start..end.min(start + 8)];
                let mut expected = [0; 8];
                expected[..word.len()].copy_from_slice(word);
                let read = TextWord::new(text, start..end).first_eight();
                assert_eq!(read.to_le_bytes(), expected, "{start}..{end}");
            }
        }
    }
}
