//! How the imports of one call are answered: noted on the way, or from what was noted before.

use std::vec::IntoIter;

use routing::{About, Answer, Noted, Question, StateRefusal, Transcript};
use thiserror::Error;

/// A decision could not be repeated: it did not ask what is noted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Divergence {
    /// Not everything was noted.
    #[error("repeat a decision whose transcript was cut at its limit")]
    Truncated,
    /// It asked something else, or the answer that is noted goes with no such question.
    #[error("repeat question {number}: it asked {asked} where {noted} is noted")]
    Other {
        /// Counted from 1.
        number: usize,
        /// What it asked this time.
        asked: Question,
        /// What it had asked.
        noted: Question,
    },
    /// It asked more.
    #[error("repeat question {number}: it asked {asked} where nothing more is noted")]
    More {
        /// Counted from 1.
        number: usize,
        /// What it asked.
        asked: Question,
    },
    /// It asked less.
    #[error("repeat question {number}: it did not ask {noted}")]
    Fewer {
        /// Counted from 1.
        number: usize,
        /// What it had asked.
        noted: Question,
    },
}

/// Beside the call that it is for.
pub(crate) enum Tape {
    Noting(Transcript),
    Replaying(Replay),
}

/// What was noted, as far as it was not yet asked for.
pub(crate) struct Replay {
    left: IntoIter<Noted>,
    asked: usize,
    diverged: Option<Divergence>,
}

/// What becomes of an import's call.
pub(crate) enum Asked {
    /// It is answered as things are.
    Live,
    /// The same, and noted.
    Noting(Question),
    /// It was answered before; nothing where the call has diverged.
    Before(Option<Answer>),
}

impl Tape {
    pub(crate) fn noting() -> Self {
        Self::Noting(Transcript::default())
    }

    /// What was noted on it.
    pub(crate) fn noted(tape: Option<Box<Self>>) -> Transcript {
        match tape.map(|tape| *tape) {
            Some(Self::Noting(transcript)) => transcript,
            _ => Transcript::default(),
        }
    }

    pub(crate) fn replaying(transcript: &Transcript) -> Self {
        let notes = transcript.notes().to_vec();
        Self::Replaying(Replay {
            left: notes.into_iter(),
            asked: 0,
            diverged: transcript.is_truncated().then_some(Divergence::Truncated),
        })
    }

    pub(crate) fn ask(&mut self, question: Question) -> Asked {
        match self {
            Self::Noting(_) => Asked::Noting(question),
            Self::Replaying(replay) => Asked::Before(replay.ask(question)),
        }
    }

    pub(crate) fn note(&mut self, question: Question, answer: Answer) {
        if let Self::Noting(transcript) = self {
            transcript.note(Noted { question, answer });
        }
    }
}

impl Replay {
    fn ask(&mut self, asked: Question) -> Option<Answer> {
        if self.diverged.is_some() {
            return None;
        }
        self.asked += 1;
        let number = self.asked;
        match self.left.next() {
            Some(noted) if noted.question == asked => Some(noted.answer),
            Some(noted) => {
                let noted = noted.question;
                self.diverged = Some(Divergence::Other { number, asked, noted });
                None
            }
            None => {
                self.diverged = Some(Divergence::More { number, asked });
                None
            }
        }
    }

    /// Where the call was not the one that was noted, the first difference.
    pub(crate) fn finish(mut self) -> Result<(), Divergence> {
        if let Some(diverged) = self.diverged {
            return Err(diverged);
        }
        match self.left.next() {
            Some(Noted { question: noted, .. }) => Err(Divergence::Fewer {
                number: self.asked + 1,
                noted,
            }),
            None => Ok(()),
        }
    }
}

/// What an import's host function returns, as it is noted.
pub(crate) trait Answered: Clone {
    fn answer(self) -> Answer;

    /// None where the answer is to another kind of question.
    fn of(answer: Answer) -> Option<Self>;

    /// What a call gets that has diverged: whatever it makes of it does not count.
    fn none() -> Self;
}

macro_rules! answered {
    ($($type:ty, $kind:ident, $none:expr;)*) => {$(
        impl Answered for $type {
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

impl Answered for () {
    fn answer(self) -> Answer {
        Answer::Nothing
    }

    fn of(answer: Answer) -> Option<Self> {
        (answer == Answer::Nothing).then_some(())
    }

    fn none() -> Self {}
}
