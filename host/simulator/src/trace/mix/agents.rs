//! Programs that call tools, with the figures that are published of Mooncake's tool and agent trace (FAST '25: mean
//! prompt 8,596 tokens, mean answer 182, 59 % of the cache's blocks reused, where others count 55 % in its file; the
//! file itself is not in the project's data).
//!
//! Many programs share a few long system prompts. A task appends its own text. Each further step, seconds later,
//! appends the previous answer and the output of the tool.

use super::draws::{Draws, Percentiles, Popularity};
use super::session::{Author, Session, Turn};
use super::text::{BlockIds, CONTEXT_TOKENS, Text};

/// Different programs, of which the most popular one has a fifth of the tasks.
const PROGRAMS: u32 = 80;

/// Tokens of a program's instructions and the descriptions of its tools.
const INSTRUCTIONS: &Percentiles = &[
    (0.0, 600.0),
    (0.25, 2_000.0),
    (0.50, 3_500.0),
    (0.75, 5_500.0),
    (0.95, 9_000.0),
    (1.0, 14_000.0),
];

/// Tokens of a task's subject.
const TASK: &Percentiles = &[
    (0.0, 20.0),
    (0.25, 480.0),
    (0.50, 1_900.0),
    (0.75, 4_200.0),
    (0.90, 8_300.0),
    (0.97, 17_000.0),
    (0.99, 33_000.0),
    (1.0, 75_000.0),
];

/// Tokens of an answer: mostly a call.
const ANSWER: &Percentiles = &[
    (0.0, 1.0),
    (0.10, 12.0),
    (0.25, 25.0),
    (0.50, 70.0),
    (0.75, 225.0),
    (0.90, 480.0),
    (0.97, 800.0),
    (0.99, 1_200.0),
    (1.0, 2_000.0),
];

/// Tokens that a tool returns.
const RESULT: &Percentiles = &[
    (0.0, 10.0),
    (0.25, 120.0),
    (0.50, 400.0),
    (0.75, 1_100.0),
    (0.95, 4_000.0),
    (1.0, 12_000.0),
];

/// Seconds from a step to the next.
const PAUSE_S: &Percentiles = &[(0.0, 1.0), (0.50, 6.0), (0.90, 25.0), (0.99, 90.0), (1.0, 300.0)];

/// Share of steps that a further one follows.
const GOES_ON: f64 = 0.35;

/// Draws tasks of the programs.
#[derive(Debug)]
pub(super) struct Agents {
    programs: Vec<Text>,
    popularity: Popularity,
}

impl Agents {
    pub(super) fn new(ids: &mut BlockIds) -> Self {
        Self {
            programs: Text::several(PROGRAMS, INSTRUCTIONS, ids),
            popularity: Popularity::of(PROGRAMS),
        }
    }
}

impl Author for Agents {
    fn session(&mut self, draws: &mut Draws, ids: &mut BlockIds) -> Session {
        let program = self.programs[draws.popular(&self.popularity)].clone();
        let mut prompt = program.and(draws.length(TASK), ids);
        let mut after_s = 0.0;
        let mut turns = Vec::new();
        while prompt.tokens() <= CONTEXT_TOKENS {
            let answer = draws.length(ANSWER);
            turns.push(Turn::request(&prompt, answer, after_s, ids));
            if !draws.chance(GOES_ON) {
                break;
            }
            after_s += draws.value(PAUSE_S);
            prompt = prompt.and(answer + draws.length(RESULT), ids);
        }
        Session {
            wait: draws.wait(),
            turns,
        }
    }
}
