//! Several questions on one long document, 16,000 to 128,000 tokens as in the simulated workloads of Mooncake's paper
//! (arXiv 2407.00079 v3). Few prompts, each of them seconds of work: where one goes decides how long those behind it
//! wait.

use super::draws::{Draws, Percentiles};
use super::session::{Author, Session, Turn};
use super::text::{BlockIds, CONTEXT_TOKENS, Text};

/// Tokens of a document: as many from 16,000 to 32,000 as from there to 64,000, and so on.
const DOCUMENT: &Percentiles = &[
    (0.0, 16_000.0),
    (1.0 / 3.0, 32_000.0),
    (2.0 / 3.0, 64_000.0),
    (1.0, 127_000.0),
];

/// Tokens of a question, fewest and most.
const QUESTION_TOKENS: (u32, u32) = (20, 300);

/// Tokens of an answer.
const ANSWER: &Percentiles = &[(0.0, 1.0), (0.50, 120.0), (0.90, 400.0), (1.0, 1_500.0)];

/// Seconds from a question to the next.
const PAUSE_S: &Percentiles = &[(0.0, 10.0), (0.50, 50.0), (0.90, 180.0), (1.0, 600.0)];

/// Share of questions that a further one on the same document follows.
const GOES_ON: f64 = 0.6;

/// Draws readers, each with a document of their own.
#[derive(Debug)]
pub(super) struct Readers;

impl Author for Readers {
    fn session(&mut self, draws: &mut Draws, ids: &mut BlockIds) -> Session {
        let document = Text::new(draws.length(DOCUMENT), ids);
        let mut after_s = 0.0;
        let mut turns = Vec::new();
        loop {
            let question = draws.tokens(QUESTION_TOKENS.0, QUESTION_TOKENS.1);
            let prompt = document.clone().and(question, ids);
            debug_assert!(prompt.tokens() <= CONTEXT_TOKENS, "a document and a question fit");
            turns.push(Turn::request(&prompt, draws.length(ANSWER), after_s, ids));
            if !draws.chance(GOES_ON) {
                return Session {
                    wait: draws.wait(),
                    turns,
                };
            }
            after_s += draws.value(PAUSE_S);
        }
    }
}
