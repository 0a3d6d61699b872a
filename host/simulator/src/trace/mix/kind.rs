//! Kinds of workloads, and their usual sizes.

use std::fmt;
use std::str::FromStr;

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
    /// Conversations among which crowds send prompts about the same text at the same time.
    Bursts,
}

/// Size of a mix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixOptions {
    /// Seed. The same seed makes the same trace.
    pub seed: u64,
    /// Exactly as many.
    pub requests: usize,
    /// Requests a second on average; above 0. Pauses within a session do not depend on it: a higher rate is more
    /// people, not faster ones.
    pub rate_per_s: f64,
}

/// A mix by a name that none has.
#[derive(Debug, thiserror::Error)]
#[error("find a mix called `{0}`: there are {names}", names = Mix::ALL.map(Mix::name).join(", "))]
pub struct UnknownMix(String);

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

    /// Returns its name in the command line.
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

    /// Returns options for about an hour, or as much as the trace has that it imitates (Mooncake's: 12,031 requests of
    /// conversations, 23,608 of agents).
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
