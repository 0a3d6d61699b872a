//! Step budget of one prompt. Counted steps make the limit depend on the prompt and not on the machine; the deadline
//! is checked between them.

use std::fmt;

use crate::error::EncodeError;

/// Steps per byte of the slow path, through `tokenizers` itself.
const LONG_WAY: u64 = 32;
/// Steps between checks of the deadline.
const LOOK_EVERY: u64 = 1 << 14;

/// Work limit of one prompt.
///
/// An unknown word of n bytes costs n times its binary logarithm plus one, like byte-pair merges. A text without words
/// (four million spaces, one letter repeated) therefore costs many times a text with words.
pub struct Budget<'b> {
    left: u64,
    until_look: u64,
    is_over: Option<&'b dyn Fn() -> bool>,
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl<'b> Budget<'b> {
    /// Creates a budget without limit.
    #[must_use]
    pub fn unlimited() -> Self {
        Self {
            left: u64::MAX,
            until_look: LOOK_EVERY,
            is_over: None,
        }
    }

    /// Creates a budget of these steps, which ends early once `is_over` returns `true`.
    #[must_use]
    pub fn new(steps: u64, is_over: &'b dyn Fn() -> bool) -> Self {
        Self {
            left: steps,
            until_look: 0,
            is_over: Some(is_over),
        }
    }

    /// Returns the remaining steps.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Spends the cost of an unknown word.
    pub(crate) fn word(&mut self, bytes: usize) -> Result<(), EncodeError> {
        let bytes = bytes.max(1) as u64;
        self.take(bytes * u64::from(bytes.ilog2() + 1))
    }

    /// Spends the cost of scanning these bytes.
    pub(crate) fn look(&mut self, bytes: usize) -> Result<(), EncodeError> {
        self.take(bytes as u64 / 8)
    }

    /// Spends the cost of the slow path: at least `LONG_WAY` steps a byte, and more for long texts, since all of the
    /// text may be one word.
    pub(crate) fn long_way(&mut self, bytes: usize) -> Result<(), EncodeError> {
        let bytes = bytes.max(1) as u64;
        self.take(bytes * u64::from(bytes.ilog2() + 1).max(LONG_WAY))
    }

    fn take(&mut self, steps: u64) -> Result<(), EncodeError> {
        self.left = self.left.checked_sub(steps).ok_or(EncodeError::TooCostly)?;
        match self.until_look.checked_sub(steps) {
            Some(until_look) => self.until_look = until_look,
            None => {
                self.until_look = LOOK_EVERY;
                if self.is_over.is_some_and(|is_over| is_over()) {
                    return Err(EncodeError::TooLate);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn nothing_is_taken_beyond_the_bound() {
        let never = || false;
        let mut budget = Budget::new(100, &never);
        // Sixteen bytes: five steps each.
        budget.word(16).unwrap();
        assert_eq!(budget.left(), 20);
        assert!(matches!(budget.word(16), Err(EncodeError::TooCostly)));
        budget.look(64).unwrap();
        assert_eq!(budget.left(), 12);
        assert!(matches!(budget.long_way(1), Err(EncodeError::TooCostly)));
    }

    #[test]
    fn the_time_is_looked_at_now_and_then() {
        let looks = Cell::new(0);
        let is_over = || {
            looks.set(looks.get() + 1);
            looks.get() > 2
        };
        let mut budget = Budget::new(u64::MAX, &is_over);
        let mut words = 0;
        let error = loop {
            if let Err(error) = budget.word(8) {
                break error;
            }
            words += 1;
        };
        assert!(matches!(error, EncodeError::TooLate));
        assert_eq!((looks.get(), words), (3, 2 * (LOOK_EVERY / 32 + 1)));
    }
}
