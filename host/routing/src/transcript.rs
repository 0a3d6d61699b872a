//! Transcript of a policy's host calls during one decision, with their results.
//!
//! Together with [`DecisionInput`](crate::DecisionInput) this is everything a verdict came from. The clock (`now_us`)
//! and the randomness (`seq` and `attempt`) follow from the request's facts and are not recorded. Log lines have no
//! result and are not recorded.

use std::fmt;

use thiserror::Error;

use crate::block::Tier;
use crate::id::WorkerId;
use crate::pipeline::Weighing;
use crate::worker::Role;

/// Maximum number of recorded calls of one decision.
const MAX_CALLS: usize = 512;
/// Maximum number of bytes of text, state and numbers in them.
const MAX_BYTES: usize = 64 << 10;

/// Host call of a policy, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostCall {
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

/// Result of a host call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostResult {
    /// Result of [`HostCall::Worker`].
    Worker(Option<About>),
    /// Result of [`HostCall::Matched`]: tokens, one number a candidate. Result of [`HostCall::Ahead`]: requests and
    /// their work, two a candidate.
    Tokens(Vec<u32>),
    /// Result of [`HostCall::Holders`].
    Count(u32),
    /// Result of [`HostCall::Header`], [`HostCall::Model`] and [`HostCall::Path`].
    Text(Option<String>),
    /// Result of [`HostCall::StateGet`].
    Bytes(Option<Vec<u8>>),
    /// Result of [`HostCall::StateSet`].
    Written(Result<(), StateRefusal>),
    /// Result of [`HostCall::StateAdd`].
    Sum(Result<i64, StateRefusal>),
    /// Result of [`HostCall::SessionRecall`]: a row.
    Row(Option<u32>),
    /// Result of [`HostCall::StateDelete`], [`HostCall::SessionRemember`] and [`HostCall::SessionForget`].
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

/// Host call and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// The call.
    pub call: HostCall,
    /// Result of the kind that goes with the call.
    pub result: HostResult,
}

/// Host calls of one decision, in order and up to a limit, or the parts of a pipeline's decision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transcript {
    calls: Vec<RecordedCall>,
    bytes: usize,
    truncated: bool,
    weighing: Option<Box<Weighing>>,
}

impl Transcript {
    /// Returns a transcript for the repetition of a record.
    #[must_use]
    pub fn of(calls: Vec<RecordedCall>, truncated: bool) -> Self {
        let bytes = calls.iter().map(RecordedCall::bytes).sum();
        Self {
            calls,
            bytes,
            truncated,
            weighing: None,
        }
    }

    /// Returns the transcript of a pipeline's decision.
    #[must_use]
    pub(crate) fn of_weighing(weighing: Weighing) -> Self {
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

    /// Records one more call. Over the limit, neither it nor any later one is recorded.
    pub fn record(&mut self, recorded: RecordedCall) {
        let bytes = self.bytes.saturating_add(recorded.bytes());
        self.truncated |= self.calls.len() == MAX_CALLS || bytes > MAX_BYTES;
        if !self.truncated {
            self.bytes = bytes;
            self.calls.push(recorded);
        }
    }

    /// Returns the calls, in the order in which they were made.
    #[must_use]
    pub fn calls(&self) -> &[RecordedCall] {
        &self.calls
    }

    /// Returns the bytes of text, state and numbers in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if there were more calls than are recorded. Such a decision cannot be repeated.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

impl RecordedCall {
    fn bytes(&self) -> usize {
        let call = match &self.call {
            HostCall::Header(text) | HostCall::StateGet(text) | HostCall::StateDelete(text) => text.len(),
            HostCall::StateAdd(key, _) => key.len(),
            HostCall::StateSet(key, value) => key.len() + value.len(),
            HostCall::Ahead(most) => size_of_val(&**most),
            HostCall::Worker(_)
            | HostCall::Matched(_)
            | HostCall::Holders(_)
            | HostCall::Model
            | HostCall::Path
            | HostCall::SessionRecall
            | HostCall::SessionRemember(..)
            | HostCall::SessionForget => 0,
        };
        let result = match &self.result {
            HostResult::Worker(Some(about)) => {
                let labels = about.labels.iter();
                about.name.len() + labels.map(|(key, value)| key.len() + value.len()).sum::<usize>()
            }
            HostResult::Tokens(tokens) => size_of_val(&**tokens),
            HostResult::Text(Some(text)) => text.len(),
            HostResult::Bytes(Some(bytes)) => bytes.len(),
            _ => 0,
        };
        call + result
    }
}

impl fmt::Display for HostCall {
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

    fn get(key: &str, value: usize) -> RecordedCall {
        RecordedCall {
            call: HostCall::StateGet(key.to_owned()),
            result: HostResult::Bytes(Some(vec![0; value])),
        }
    }

    #[test]
    fn calls_over_the_limit_are_dropped_and_reported_as_missing() {
        let mut transcript = Transcript::default();
        for _ in 0..4 {
            transcript.record(get("k", MAX_BYTES / 4 - 1));
        }
        assert!(!transcript.is_truncated());
        assert_eq!(transcript.bytes(), MAX_BYTES);
        transcript.record(get("", 1));
        transcript.record(get("", 0));
        assert!(transcript.is_truncated());
        assert_eq!(transcript.calls().len(), 4);
    }

    #[test]
    fn so_many_calls_are_recorded_and_no_more() {
        let mut transcript = Transcript::default();
        for _ in 0..=MAX_CALLS {
            transcript.record(get("", 0));
        }
        assert!(transcript.is_truncated());
        assert_eq!(transcript.calls().len(), MAX_CALLS);
    }
}
