//! Assistants with long instructions that answer single short questions: nearly all of a prompt is shared with others,
//! and which worker holds which instructions is what matters.

use super::draws::{Draws, Percentiles, Popularity};
use super::session::{Author, Session, Turn};
use super::text::{BlockIds, Text};

/// Different assistants, of which the most popular one has over a fifth of the questions.
const ASSISTANTS: u32 = 60;

/// Tokens of an assistant's instructions and examples.
const INSTRUCTIONS: &Percentiles = &[
    (0.0, 1_000.0),
    (0.50, 4_000.0),
    (0.90, 10_000.0),
    (0.98, 24_000.0),
    (1.0, 32_000.0),
];

/// Tokens of a question.
const QUESTION: &Percentiles = &[
    (0.0, 5.0),
    (0.50, 60.0),
    (0.90, 500.0),
    (0.99, 2_000.0),
    (1.0, 6_000.0),
];

/// Tokens of an answer.
const ANSWER: &Percentiles = &[
    (0.0, 1.0),
    (0.10, 20.0),
    (0.50, 180.0),
    (0.90, 500.0),
    (0.99, 1_000.0),
    (1.0, 2_000.0),
];

/// Draws questions to the assistants.
#[derive(Debug)]
pub(super) struct Assistants {
    instructions: Vec<Text>,
    popularity: Popularity,
}

impl Assistants {
    pub(super) fn new(ids: &mut BlockIds) -> Self {
        Self {
            instructions: Text::several(ASSISTANTS, INSTRUCTIONS, ids),
            popularity: Popularity::of(ASSISTANTS),
        }
    }
}

impl Author for Assistants {
    fn session(&mut self, draws: &mut Draws, ids: &mut BlockIds) -> Session {
        let instructions = self.instructions[draws.popular(&self.popularity)].clone();
        let prompt = instructions.and(draws.length(QUESTION), ids);
        let turn = Turn::request(&prompt, draws.length(ANSWER), 0.0, ids);
        Session {
            wait: draws.wait(),
            turns: vec![turn],
        }
    }
}
