//! Sessions: the requests of one user or program, and the authors that draw them.

use super::draws::Draws;
use super::text::{BlockIds, Text};

/// A session: the requests of one user or program, and their times.
#[derive(Debug)]
pub(super) struct Session {
    /// Time between the start of the session before and this one's; 1 is the mean of a mix whose sessions arrive
    /// evenly.
    pub(super) wait: f64,
    /// Turns, at least one, in order.
    pub(super) turns: Vec<Turn>,
}

/// One request of a session.
#[derive(Debug)]
pub(super) struct Turn {
    /// Seconds from the start of the session.
    pub(super) after_s: f64,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    pub(super) blocks: Box<[u64]>,
}

/// Draws the sessions of a mix, one after the other.
pub(super) trait Author {
    fn session(&mut self, draws: &mut Draws, ids: &mut BlockIds) -> Session;
}

impl Turn {
    /// Returns a session's request with all of `prompt`.
    pub(super) fn request(prompt: &Text, output_tokens: u32, after_s: f64, ids: &mut BlockIds) -> Self {
        Self {
            after_s,
            prompt_tokens: prompt.tokens(),
            output_tokens: output_tokens.max(1),
            blocks: prompt.blocks(ids),
        }
    }
}
