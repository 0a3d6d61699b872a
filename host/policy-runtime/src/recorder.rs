//! Recorder of host calls: records the imports' results during a call, or replays recorded ones.

use std::vec::IntoIter;

use routing::{About, HostCall, HostResult, RecordedCall, StateRefusal, Transcript};
use thiserror::Error;

/// A decision cannot be replayed: its host calls differ from the recorded ones.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Divergence {
    /// The recording was truncated.
    #[error("replay a decision whose transcript was truncated")]
    Truncated,
    /// The policy made another host call, or the recorded result does not match the call.
    #[error("replay host call {number}: it called {called}, but {recorded} is recorded")]
    Other {
        /// Number of the call, from 1.
        number: usize,
        /// The call made now.
        called: HostCall,
        /// The recorded call.
        recorded: HostCall,
    },
    /// The policy made more host calls.
    #[error("replay host call {number}: it called {called}, but no further call is recorded")]
    More {
        /// Number of the call, from 1.
        number: usize,
        /// The call made now.
        called: HostCall,
    },
    /// The policy made fewer host calls.
    #[error("replay host call {number}: it did not call {recorded}")]
    Fewer {
        /// Number of the call, from 1.
        number: usize,
        /// The recorded call.
        recorded: HostCall,
    },
}

/// Recorder of one call.
pub(crate) enum HostCallRecorder {
    Recording(Transcript),
    Replaying(CallReplay),
}

/// Recorded calls that were not replayed yet.
pub(crate) struct CallReplay {
    left: IntoIter<RecordedCall>,
    called: usize,
    diverged: Option<Divergence>,
}

/// Handling of an import's call.
pub(crate) enum CallHandling {
    /// The current result.
    Live,
    /// The current result, which is recorded.
    Recording(HostCall),
    /// The recorded result; `None` if the call has diverged.
    Replayed(Option<HostResult>),
}

impl HostCallRecorder {
    pub(crate) fn recording() -> Self {
        Self::Recording(Transcript::default())
    }

    /// Returns the recording.
    pub(crate) fn into_transcript(recorder: Option<Box<Self>>) -> Transcript {
        match recorder.map(|recorder| *recorder) {
            Some(Self::Recording(transcript)) => transcript,
            _ => Transcript::default(),
        }
    }

    pub(crate) fn replaying(transcript: &Transcript) -> Self {
        let calls = transcript.calls().to_vec();
        Self::Replaying(CallReplay {
            left: calls.into_iter(),
            called: 0,
            diverged: transcript.is_truncated().then_some(Divergence::Truncated),
        })
    }

    pub(crate) fn host_call(&mut self, call: HostCall) -> CallHandling {
        match self {
            Self::Recording(_) => CallHandling::Recording(call),
            Self::Replaying(replay) => CallHandling::Replayed(replay.host_call(call)),
        }
    }

    pub(crate) fn record(&mut self, call: HostCall, result: HostResult) {
        if let Self::Recording(transcript) = self {
            transcript.record(RecordedCall { call, result });
        }
    }
}

impl CallReplay {
    fn host_call(&mut self, called: HostCall) -> Option<HostResult> {
        if self.diverged.is_some() {
            return None;
        }
        self.called += 1;
        let number = self.called;
        match self.left.next() {
            Some(next) if next.call == called => Some(next.result),
            Some(next) => {
                let recorded = next.call;
                self.diverged = Some(Divergence::Other {
                    number,
                    called,
                    recorded,
                });
                None
            }
            None => {
                self.diverged = Some(Divergence::More { number, called });
                None
            }
        }
    }

    /// Ends a replay. Returns the first difference if the call has diverged.
    pub(crate) fn finish(mut self) -> Result<(), Divergence> {
        if let Some(diverged) = self.diverged {
            return Err(diverged);
        }
        match self.left.next() {
            Some(RecordedCall { call: recorded, .. }) => Err(Divergence::Fewer {
                number: self.called + 1,
                recorded,
            }),
            None => Ok(()),
        }
    }
}

/// Result type of an import's host function, in recorded form.
pub(crate) trait RecordedResult: Clone {
    fn recorded(self) -> HostResult;

    /// Converts a recorded result; `None` if it belongs to another kind of call.
    fn of(result: HostResult) -> Option<Self>;

    /// Returns the result of a diverged call: its effects are ignored.
    fn none() -> Self;
}

macro_rules! recorded_results {
    ($($type:ty, $kind:ident, $none:expr;)*) => {$(
        impl RecordedResult for $type {
            fn recorded(self) -> HostResult {
                HostResult::$kind(self)
            }

            fn of(result: HostResult) -> Option<Self> {
                match result {
                    HostResult::$kind(result) => Some(result),
                    _ => None,
                }
            }

            fn none() -> Self {
                $none
            }
        }
    )*};
}

recorded_results! {
    Option<About>, Worker, None;
    Vec<u32>, Tokens, Vec::new();
    u32, Count, 0;
    Option<u32>, Row, None;
    Option<String>, Text, None;
    Option<Vec<u8>>, Bytes, None;
    Result<(), StateRefusal>, Written, Ok(());
    Result<i64, StateRefusal>, Sum, Ok(0);
}

impl RecordedResult for () {
    fn recorded(self) -> HostResult {
        HostResult::Nothing
    }

    fn of(result: HostResult) -> Option<Self> {
        (result == HostResult::Nothing).then_some(())
    }

    fn none() -> Self {}
}
