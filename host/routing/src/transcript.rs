//! Transcript of a policy's queries during one decision, with the answers.
//!
//! Together with [`DecisionInput`](crate::DecisionInput) this is everything a verdict came from. The clock (`now_us`)
//! and the randomness (`seq` and `attempt`) follow from the request's facts and are not recorded. Log lines have no
//! answer and are not recorded.

use std::fmt;

use thiserror::Error;

use crate::block::Tier;
use crate::id::WorkerId;
use crate::pipeline::Weighing;
use crate::worker::Role;

/// Most calls that are noted of one decision.
const MAX_NOTES: usize = 512;
/// Most bytes of text, state and numbers in them.
const MAX_BYTES: usize = 64 << 10;

/// One call of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// `workers.describe`
    Worker(WorkerId),
    /// `index.matched`
    Matched(Tier),
    /// `index.holders`, with a number of tokens.
    Holders(u32),
    /// `inspect.header`
    Header(String),
    /// `inspect.model`
    Model,
    /// `inspect.path`
    Path,
    /// `state.get`
    StateGet(String),
    /// `state.set`
    StateSet(String, Vec<u8>),
    /// `state.add`
    StateAdd(String, i64),
    /// `state.delete`
    StateDelete(String),
    /// `sessions.recall`
    SessionRecall,
    /// `sessions.remember`, with a row and a time to live in milliseconds.
    SessionRemember(u32, u32),
    /// `sessions.forget`
    SessionForget,
    /// `queue.ahead`, with the most work of each candidate.
    Ahead(Vec<u32>),
}

/// Answer of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Answer to [`Question::Worker`].
    Worker(Option<About>),
    /// Answer to [`Question::Matched`]: tokens, one number a candidate. Answer to [`Question::Ahead`]: requests and
    /// their work, two a candidate.
    Tokens(Vec<u32>),
    /// Answer to [`Question::Holders`].
    Count(u32),
    /// Answer to [`Question::Header`], [`Question::Model`] and [`Question::Path`].
    Text(Option<String>),
    /// Answer to [`Question::StateGet`].
    Bytes(Option<Vec<u8>>),
    /// Answer to [`Question::StateSet`].
    Written(Result<(), StateRefusal>),
    /// Answer to [`Question::StateAdd`].
    Sum(Result<i64, StateRefusal>),
    /// Answer to [`Question::SessionRecall`]: a row.
    Row(Option<u32>),
    /// Answer to [`Question::StateDelete`], [`Question::SessionRemember`] and [`Question::SessionForget`].
    Nothing,
}

/// Facts of a worker besides numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Name.
    pub name: String,
    /// Role.
    pub role: Role,
    /// Sorted by key.
    pub labels: Vec<(String, String)>,
}

/// Reason for refusing a write to a policy's state, as in the WIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StateRefusal {
    /// The key is over its limit.
    #[error("key is too long")]
    KeyTooLong,
    /// The value is over its limit.
    #[error("value is too long")]
    ValueTooLong,
    /// The state has its maximum number of keys.
    #[error("there are as many keys already as there may be")]
    Full,
    /// The value has another length than a counter's 8 bytes.
    #[error("value is not a counter")]
    NotACounter,
}

/// A question and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// The query.
    pub question: Question,
    /// Answer of the kind that goes with the question.
    pub answer: Answer,
}

/// Every call of an import that one decision made, in order, up to a limit; or what a pipeline made its decision of.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transcript {
    notes: Vec<Noted>,
    bytes: usize,
    truncated: bool,
    weighing: Option<Box<Weighing>>,
}

impl Transcript {
    /// Returns a transcript for the repetition of a record.
    #[must_use]
    pub fn of(notes: Vec<Noted>, truncated: bool) -> Self {
        let bytes = notes.iter().map(Noted::bytes).sum();
        Self {
            notes,
            bytes,
            truncated,
            weighing: None,
        }
    }

    /// Returns the transcript of a pipeline's decision.
    #[must_use]
    pub fn of_weighing(weighing: Weighing) -> Self {
        Self {
            bytes: weighing.bytes(),
            weighing: Some(Box::new(weighing)),
            ..Self::default()
        }
    }

    /// Returns the parts of a pipeline's decision. `None` where no pipeline decided.
    #[must_use]
    pub fn weighing(&self) -> Option<&Weighing> {
        self.weighing.as_deref()
    }

    /// Notes one more call; over the limit, neither it nor any after it.
    pub fn note(&mut self, noted: Noted) {
        let bytes = self.bytes.saturating_add(noted.bytes());
        self.truncated |= self.notes.len() == MAX_NOTES || bytes > MAX_BYTES;
        if !self.truncated {
            self.bytes = bytes;
            self.notes.push(noted);
        }
    }

    /// Returns the calls, in the order in which they were made.
    #[must_use]
    pub fn notes(&self) -> &[Noted] {
        &self.notes
    }

    /// Bytes of text, state and numbers in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether there were more calls than are noted: such a decision cannot be repeated.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

impl Noted {
    fn bytes(&self) -> usize {
        let question = match &self.question {
            Question::Header(text) | Question::StateGet(text) | Question::StateDelete(text) => text.len(),
            Question::StateAdd(key, _) => key.len(),
            Question::StateSet(key, value) => key.len() + value.len(),
            Question::Ahead(most) => size_of_val(&**most),
            Question::Worker(_)
            | Question::Matched(_)
            | Question::Holders(_)
            | Question::Model
            | Question::Path
            | Question::SessionRecall
            | Question::SessionRemember(..)
            | Question::SessionForget => 0,
        };
        let answer = match &self.answer {
            Answer::Worker(Some(about)) => {
                let labels = about.labels.iter();
                about.name.len() + labels.map(|(key, value)| key.len() + value.len()).sum::<usize>()
            }
            Answer::Tokens(tokens) => size_of_val(&**tokens),
            Answer::Text(Some(text)) => text.len(),
            Answer::Bytes(Some(bytes)) => bytes.len(),
            _ => 0,
        };
        question + answer
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(id) => write!(f, "workers.describe({})", id.0),
            Self::Matched(tier) => write!(f, "index.matched({tier:?})"),
            Self::Holders(tokens) => write!(f, "index.holders({tokens})"),
            Self::Header(name) => write!(f, "inspect.header({name:?})"),
            Self::Model => f.write_str("inspect.model()"),
            Self::Path => f.write_str("inspect.path()"),
            Self::StateGet(key) => write!(f, "state.get({key:?})"),
            Self::StateSet(key, value) => write!(f, "state.set({key:?}, {} bytes)", value.len()),
            Self::StateAdd(key, by) => write!(f, "state.add({key:?}, {by})"),
            Self::StateDelete(key) => write!(f, "state.delete({key:?})"),
            Self::SessionRecall => f.write_str("sessions.recall()"),
            Self::SessionRemember(row, ttl_ms) => write!(f, "sessions.remember({row}, {ttl_ms})"),
            Self::SessionForget => f.write_str("sessions.forget()"),
            Self::Ahead(most) => write!(f, "queue.ahead({most:?})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(key: &str, value: usize) -> Noted {
        Noted {
            question: Question::StateGet(key.to_owned()),
            answer: Answer::Bytes(Some(vec![0; value])),
        }
    }

    #[test]
    fn notes_over_the_limit_are_dropped_and_reported_as_missing() {
        let mut transcript = Transcript::default();
        for _ in 0..4 {
            transcript.note(get("k", MAX_BYTES / 4 - 1));
        }
        assert!(!transcript.is_truncated());
        assert_eq!(transcript.bytes(), MAX_BYTES);
        transcript.note(get("", 1));
        transcript.note(get("", 0));
        assert!(transcript.is_truncated());
        assert_eq!(transcript.notes().len(), 4);
    }

    #[test]
    fn so_many_calls_are_noted_and_no_more() {
        let mut transcript = Transcript::default();
        for _ in 0..=MAX_NOTES {
            transcript.note(get("", 0));
        }
        assert!(transcript.is_truncated());
        assert_eq!(transcript.notes().len(), MAX_NOTES);
    }
}
