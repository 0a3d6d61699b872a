//! Recorder of host calls: records the imports' results during a call, or replays recorded ones.

use std::vec::IntoIter;

use routing::{About, Answer, Noted, Question, StateRefusal, Transcript};
use thiserror::Error;

/// A decision cannot be replayed: its host calls differ from the recorded ones.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Divergence {
    /// The recording was truncated.
    #[error("replay a decision whose transcript was truncated")]
    Truncated,
    /// The policy made another host call, or the recorded result does not match the call.
    #[error("replay host call {number}: it called {called}, but {noted} is recorded")]
    Other {
        /// Number of the call, from 1.
        number: usize,
        /// The call made now.
        called: Question,
        /// The recorded call.
        noted: Question,
    },
    /// The policy made more host calls.
    #[error("replay host call {number}: it called {called}, but no further call is recorded")]
    More {
        /// Number of the call, from 1.
        number: usize,
        /// The call made now.
        called: Question,
    },
    /// The policy made fewer host calls.
    #[error("replay host call {number}: it did not call {noted}")]
    Fewer {
        /// Number of the call, from 1.
        number: usize,
        /// The recorded call.
        noted: Question,
    },
}

/// Recorder of one call.
pub(crate) enum HostCallRecorder {
    Noting(Transcript),
    Replaying(CallReplay),
}

/// Recorded calls that were not replayed yet.
pub(crate) struct CallReplay {
    left: IntoIter<Noted>,
    called: usize,
    diverged: Option<Divergence>,
}

/// Handling of an import's call.
pub(crate) enum CallHandling {
    /// The current result.
    Live,
    /// The current result, which is recorded.
    Noting(Question),
    /// The recorded result; `None` if the call has diverged.
    Before(Option<Answer>),
}

impl HostCallRecorder {
    pub(crate) fn recording() -> Self {
        Self::Noting(Transcript::default())
    }

    /// Returns the recording.
    pub(crate) fn noted(recorder: Option<Box<Self>>) -> Transcript {
        match recorder.map(|recorder| *recorder) {
            Some(Self::Noting(transcript)) => transcript,
            _ => Transcript::default(),
        }
    }

    pub(crate) fn replaying(transcript: &Transcript) -> Self {
        let notes = transcript.notes().to_vec();
        Self::Replaying(CallReplay {
            left: notes.into_iter(),
            called: 0,
            diverged: transcript.is_truncated().then_some(Divergence::Truncated),
        })
    }

    pub(crate) fn host_call(&mut self, question: Question) -> CallHandling {
        match self {
            Self::Noting(_) => CallHandling::Noting(question),
            Self::Replaying(replay) => CallHandling::Before(replay.host_call(question)),
        }
    }

    pub(crate) fn record(&mut self, question: Question, answer: Answer) {
        if let Self::Noting(transcript) = self {
            transcript.note(Noted { question, answer });
        }
    }
}

impl CallReplay {
    fn host_call(&mut self, called: Question) -> Option<Answer> {
        if self.diverged.is_some() {
            return None;
        }
        self.called += 1;
        let number = self.called;
        match self.left.next() {
            Some(noted) if noted.question == called => Some(noted.answer),
            Some(noted) => {
                let noted = noted.question;
                self.diverged = Some(Divergence::Other {
                    number,
                    called,
                    noted,
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
            Some(Noted { question: noted, .. }) => Err(Divergence::Fewer {
                number: self.called + 1,
                noted,
            }),
            None => Ok(()),
        }
    }
}

/// Result type of an import's host function, in recorded form.
pub(crate) trait RecordedResult: Clone {
    fn answer(self) -> Answer;

    /// Converts a recorded result; `None` if it belongs to another kind of call.
    fn of(answer: Answer) -> Option<Self>;

    /// Returns the result of a diverged call: its effects are ignored.
    fn none() -> Self;
}

macro_rules! answered {
    ($($type:ty, $kind:ident, $none:expr;)*) => {$(
        impl RecordedResult for $type {
            fn answer(self) -> Answer {
                Answer::$kind(self)
            }

            fn of(answer: Answer) -> Option<Self> {
                match answer {
                    Answer::$kind(answer) => Some(answer),
                    _ => None,
                }
            }

            fn none() -> Self {
                $none
            }
        }
    )*};
}

answered! {
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
    fn answer(self) -> Answer {
        Answer::Nothing
    }

    fn of(answer: Answer) -> Option<Self> {
        (answer == Answer::Nothing).then_some(())
    }

    fn none() -> Self {}
}
