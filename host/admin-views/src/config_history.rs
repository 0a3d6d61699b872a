//! History of configuration texts: the latest ones, without their secrets, and the differences between them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use conductor_config::redacted;
use routing::hex;
use serde::Serialize;
use sha2::{Digest, Sha256};
use similar::TextDiff;
use thiserror::Error;

use crate::changes::{ChangeCause, ChangeResult};

/// Texts that are kept.
pub const CONFIG_TEXTS: usize = 32;
/// Most bytes of all kept texts. Older ones are dropped.
const MOST_BYTES: usize = 8 << 20;
/// Longest time of the search for the smallest difference; after it, a larger one is shown.
const DIFF_TIME: Duration = Duration::from_millis(200);
/// Longest difference in bytes.
const LONGEST_DIFF: usize = 1 << 20;

/// Configuration text that was applied or refused. `P` is a problem of it.
#[derive(Debug)]
pub struct NewText<'t, P> {
    /// Generation that it became. `None` if it was refused.
    pub generation: Option<u64>,
    /// Cause.
    pub cause: ChangeCause,
    /// Reason that the operator gave.
    pub by: Option<String>,
    /// The text, with its secrets.
    pub text: &'t str,
    /// Problems of a refused text.
    pub problems: Vec<P>,
}

/// Row of the history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GenerationRow<P> {
    /// Number, from 1.
    pub id: u64,
    /// Seconds since 1970.
    pub at: f64,
    /// Generation that the text became. `None` if it was refused.
    pub generation: Option<u64>,
    /// Cause.
    pub cause: ChangeCause,
    /// Reason that the operator gave.
    pub by: Option<String>,
    /// Result.
    pub result: ChangeResult,
    /// SHA-256 of the text without its secrets, which could be guessed from one of the whole text. `None` if the text
    /// is no TOML.
    pub sha256: Option<String>,
    /// Problems of a refused text.
    pub problems: Vec<P>,
}

/// Difference of a text from the one that was active before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigDiff {
    /// Number of the text.
    pub id: u64,
    /// Number of the text before. `None` for the first.
    pub against: Option<u64>,
    /// Unified diff of the texts without their secrets.
    pub diff: String,
}

/// Reason for a missing difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DiffError {
    /// The history has no such text any more, or never had.
    #[error("the history has no text {0}; GET /admin/config/history lists those that it has")]
    Unknown(u64),
    /// One of the texts is not kept.
    #[error(
        "the text {0} is not kept: it is no TOML, or is too large for the history with the texts around it"
    )]
    NotKept(u64),
}

/// Two texts without secrets, to be compared.
#[derive(Debug, Clone)]
pub struct TextPair {
    id: u64,
    against: Option<u64>,
    before: Arc<str>,
    after: Arc<str>,
}

#[derive(Debug)]
struct ConfigEntry<P> {
    row: GenerationRow<P>,
    /// Number of the text that was active before.
    against: Option<u64>,
    /// The text without its secrets.
    text: Option<Arc<str>>,
}

/// Ring of the latest texts.
#[derive(Debug)]
pub struct ConfigHistory<P> {
    entries: VecDeque<ConfigEntry<P>>,
    last: u64,
    /// Number of the active text.
    active: Option<u64>,
}

impl<P> Default for ConfigHistory<P> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            last: 0,
            active: None,
        }
    }
}

impl<P: Clone> ConfigHistory<P> {
    /// Adds a text of the time `at`.
    pub fn add(&mut self, at: f64, new: NewText<'_, P>) {
        if self.entries.len() == CONFIG_TEXTS {
            self.entries.pop_front();
        }
        self.last += 1;
        let result = match new.generation {
            Some(_) => ChangeResult::Applied,
            None => ChangeResult::Refused,
        };
        let text: Option<Arc<str>> = redacted(new.text).map(Arc::from);
        self.entries.push_back(ConfigEntry {
            row: GenerationRow {
                id: self.last,
                at,
                generation: new.generation,
                cause: new.cause,
                by: new.by,
                result,
                sha256: text.as_deref().map(text_sha256),
                problems: new.problems,
            },
            against: self.active,
            text,
        });
        if result == ChangeResult::Applied {
            self.active = Some(self.last);
        }
        self.drop_oldest_texts();
    }

    /// Returns the rows, newest first.
    #[must_use]
    pub fn rows(&self) -> Vec<GenerationRow<P>> {
        let newest_first = self.entries.iter().rev();
        newest_first.map(|entry| entry.row.clone()).collect()
    }

    /// Returns a text and the one that was active before.
    ///
    /// # Errors
    /// [`DiffError`].
    pub fn pair(&self, id: u64) -> Result<TextPair, DiffError> {
        let entry = self.entry(id).ok_or(DiffError::Unknown(id))?;
        let text = |id| {
            let entry = self.entry(id).ok_or(DiffError::NotKept(id))?;
            entry.text.clone().ok_or(DiffError::NotKept(id))
        };
        Ok(TextPair {
            id,
            against: entry.against,
            before: entry.against.map_or_else(|| Ok(Arc::from("")), text)?,
            after: text(id)?,
        })
    }

    fn entry(&self, id: u64) -> Option<&ConfigEntry<P>> {
        self.entries.iter().find(|entry| entry.row.id == id)
    }

    fn drop_oldest_texts(&mut self) {
        let mut bytes = 0;
        for entry in self.entries.iter_mut().rev() {
            bytes += entry.text.as_ref().map_or(0, |text| text.len());
            if bytes > MOST_BYTES {
                entry.text = None;
            }
        }
    }
}

impl TextPair {
    /// Returns the difference. It may take a moment.
    #[must_use]
    pub fn diff(&self) -> ConfigDiff {
        ConfigDiff {
            id: self.id,
            against: self.against,
            diff: text_diff(&self.before, &self.after),
        }
    }
}

/// Returns the SHA-256 of a text, as pages and `If-Match` have it.
#[must_use]
pub fn text_sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Returns the unified diff of two texts without secrets. It is empty where they are the same.
fn text_diff(before: &str, after: &str) -> String {
    let mut config = TextDiff::configure();
    let diff = config.timeout(DIFF_TIME).diff_lines(before, after);
    let mut text = diff.unified_diff().header("before", "after").to_string();
    if text.len() > LONGEST_DIFF {
        text.truncate(text.floor_char_boundary(LONGEST_DIFF));
        text.push_str("\n\\ the rest is left out\n");
    }
    text
}

/// Returns the unified diff of two configuration texts, without their secrets. `None` if one of them is no TOML.
#[must_use]
pub fn redacted_diff(before: &str, after: &str) -> Option<String> {
    Some(text_diff(&redacted(before)?, &redacted(after)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(history: &mut ConfigHistory<String>, text: &str, generation: Option<u64>) {
        history.add(
            1.0,
            NewText {
                generation,
                cause: ChangeCause::File,
                by: None,
                text,
                problems: vec![],
            },
        );
    }

    #[test]
    fn a_text_is_compared_with_the_one_that_was_active_before() {
        let mut history = ConfigHistory::default();
        add(&mut history, "a = 1\nb = 1\n", Some(1));
        add(&mut history, "a = 2\nb = 1\n", None);
        add(&mut history, "a = 3\nb = 1\n", Some(2));
        let diff = |id| history.pair(id).unwrap().diff();
        assert_eq!(
            (diff(1).against, diff(2).against, diff(3).against),
            (None, Some(1), Some(1))
        );
        assert!(diff(1).diff.contains("+a = 1"), "{}", diff(1).diff);
        let expected = "--- before\n+++ after\n@@ -1,2 +1,2 @@\n-a = 1\n+a = 3\n b = 1\n";
        assert_eq!(diff(3).diff, expected);
        assert_eq!(history.pair(9).unwrap_err(), DiffError::Unknown(9));
        let results: Vec<_> = history.rows().iter().map(|row| row.result.as_str()).collect();
        assert_eq!(results, ["applied", "refused", "applied"]);
    }

    #[test]
    fn secrets_are_neither_in_a_diff_nor_in_a_hash() {
        let mut history = ConfigHistory::default();
        add(&mut history, "api-key = \"hush1\"\n", Some(1));
        add(&mut history, "api-key = \"hush2\"\n", Some(2));
        add(&mut history, "api-key = \"hush2\"\n# other\n", Some(3));
        let diff = history.pair(3).unwrap().diff().diff;
        assert!(diff.contains("+# other") && !diff.contains("hush"), "{diff}");
        let rows = history.rows();
        assert!(rows[2].sha256.is_some() && rows[2].sha256 == rows[1].sha256);
        assert_ne!(rows[0].sha256, rows[1].sha256);
        assert_eq!(
            redacted_diff("api-key = \"hush1\"", "api-key = \"hush2\"").as_deref(),
            Some("")
        );
    }

    #[test]
    fn a_text_that_is_no_toml_is_listed_without_a_diff() {
        let mut history = ConfigHistory::default();
        add(&mut history, "a = 1\n", Some(1));
        add(&mut history, "key = \"hush\n[[", None);
        assert_eq!(history.pair(2).unwrap_err(), DiffError::NotKept(2));
        assert_eq!(history.rows().len(), 2);
        assert_eq!(redacted_diff("a = 1", "[["), None);
    }

    #[test]
    fn the_ring_is_bounded_in_texts_and_bytes() {
        let mut history = ConfigHistory::default();
        for generation in 0..CONFIG_TEXTS as u64 + 3 {
            add(&mut history, "a = 1\n", Some(generation));
        }
        assert_eq!(history.rows().len(), CONFIG_TEXTS);
        let large = format!("# {}\n", "x".repeat(MOST_BYTES / 2));
        for generation in 100..103 {
            add(&mut history, &large, Some(generation));
        }
        let ids: Vec<_> = history.rows().iter().map(|row| row.id).collect();
        assert!(history.pair(ids[0]).is_err(), "two of them do not fit");
        let kept: usize = history
            .entries
            .iter()
            .filter_map(|entry| Some(entry.text.as_ref()?.len()))
            .sum();
        assert!(kept <= MOST_BYTES);
    }
}
