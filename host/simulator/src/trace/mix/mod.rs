//! Generators: workloads made from a seed, where no recorded trace is at hand or a policy must not have been tuned on it.
//!
//! A mix draws sessions (one or several prompts, each growing out of the one before, or sharing a text with others); a calendar puts them
//! in time. Blocks have 512 tokens, and ids count up in the order of arrival, as in Mooncake's files.

mod agents;
mod bursts;
mod calendar;
mod conversation;
mod draws;
mod long_context;
mod rag;
mod shared_prompt;
mod text;

use std::fmt;
use std::str::FromStr;

use self::draws::Draws;
use self::text::{BlockIds, Text};
use crate::request::Trace;

/// A kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Chats of people, as in Mooncake's conversation trace.
    Conversation,
    /// Programs that call tools: long shared instructions, short answers, seconds between the steps of a task.
    Agents,
    /// Assistants with long instructions that answer single short questions.
    SharedPrompt,
    /// Questions on documents found by a search, which put the same documents in different orders.
    Rag,
    /// Several questions on one document of 16,000 to 128,000 tokens.
    LongContext,
    /// Conversations among which crowds ask about the same text at the same time.
    Bursts,
}

/// Size of a mix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixOptions {
    /// The same seed makes the same trace.
    pub seed: u64,
    /// Exactly as many.
    pub requests: usize,
    /// Requests a second on average; above 0. Pauses within a session do not depend on it: a higher rate is more people, not faster ones.
    pub rate_per_s: f64,
}

/// A mix by a name that none has.
#[derive(Debug, thiserror::Error)]
#[error("find a mix called `{0}`: there are {names}", names = Mix::ALL.map(Mix::name).join(", "))]
pub struct UnknownMix(String);

/// A session: the requests of one user or program, and their times.
#[derive(Debug)]
struct Session {
    /// Between the start of the session before and this one's; 1 is the mean of a mix whose sessions arrive evenly.
    wait: f64,
    /// At least one, in order.
    turns: Vec<Turn>,
}

/// One request of a session.
#[derive(Debug)]
struct Turn {
    /// Seconds from the start of the session.
    after_s: f64,
    prompt_tokens: u32,
    output_tokens: u32,
    blocks: Box<[u64]>,
}

/// Draws the sessions of a mix, one after the other.
trait Author {
    fn session(&mut self, draws: &mut Draws, ids: &mut BlockIds) -> Session;
}

impl Mix {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::Conversation,
        Self::Agents,
        Self::SharedPrompt,
        Self::Rag,
        Self::LongContext,
        Self::Bursts,
    ];

    /// Its name in the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Agents => "agents",
            Self::SharedPrompt => "shared-prompt",
            Self::Rag => "rag",
            Self::LongContext => "long-context",
            Self::Bursts => "bursts",
        }
    }

    /// About an hour of it, or as much as the trace has that it imitates (Mooncake's: 12,031 requests of conversations, 23,608 of agents).
    #[must_use]
    pub const fn usual(self, seed: u64) -> MixOptions {
        let (requests, rate_per_s) = match self {
            Self::Conversation | Self::Bursts => (12_031, 3.4),
            Self::Agents => (23_608, 6.6),
            Self::SharedPrompt => (18_000, 5.0),
            Self::Rag => (12_000, 3.4),
            Self::LongContext => (2_000, 0.6),
        };
        MixOptions {
            seed,
            requests,
            rate_per_s,
        }
    }

    /// Makes the trace.
    #[must_use]
    pub fn generate(self, options: &MixOptions) -> Trace {
        let mut draws = Draws::of(options.seed, self);
        let mut ids = BlockIds::default();
        let mut author = self.author(&mut draws, &mut ids);
        // Each has at least one request, so that these are enough.
        let sessions = (0..options.requests)
            .map(|_| author.session(&mut draws, &mut ids))
            .collect();
        Trace {
            name: format!("{self} mix, seed {}", options.seed),
            block_tokens: text::BLOCK_TOKENS,
            requests: calendar::arrange(sessions, options),
        }
    }

    fn author(self, draws: &mut Draws, ids: &mut BlockIds) -> Box<dyn Author> {
        match self {
            Self::Conversation => Box::new(conversation::Conversations::new(ids)),
            Self::Agents => Box::new(agents::Agents::new(ids)),
            Self::SharedPrompt => Box::new(shared_prompt::Assistants::new(ids)),
            Self::Rag => Box::new(rag::Library::new(draws, ids)),
            Self::LongContext => Box::new(long_context::Readers),
            Self::Bursts => Box::new(bursts::Crowds::new(ids)),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Mix {
    type Err = UnknownMix;

    fn from_str(name: &str) -> Result<Self, UnknownMix> {
        Self::ALL
            .into_iter()
            .find(|mix| mix.name() == name)
            .ok_or_else(|| UnknownMix(name.to_owned()))
    }
}

impl Turn {
    /// Returns a session's request with all of `prompt`.
    fn asking(prompt: &Text, output_tokens: u32, after_s: f64, ids: &mut BlockIds) -> Self {
        Self {
            after_s,
            prompt_tokens: prompt.tokens(),
            output_tokens: output_tokens.max(1),
            blocks: prompt.blocks(ids),
        }
    }
}

#[cfg(test)]
mod tests;
