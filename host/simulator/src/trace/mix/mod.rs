//! Generators: workloads made from a seed, where no recorded trace is at hand or a policy must not have been tuned on
//! it.
//!
//! A mix draws sessions (one or several prompts, each growing out of the one before, or sharing a text with others); a
//! calendar puts them in time. Blocks have 512 tokens, and ids count up in the order of arrival, as in Mooncake's
//! files.

mod agents;
mod bursts;
mod calendar;
mod conversation;
mod draws;
mod kind;
mod long_context;
mod rag;
mod session;
mod shared_prompt;
mod text;

use self::draws::Draws;
pub use self::kind::{Mix, MixOptions, UnknownMix};
use self::session::Author;
use self::text::BlockIds;
use crate::request::Trace;

impl Mix {
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
            Self::Bursts => Box::new(bursts::SharedTextBursts::new(ids)),
        }
    }
}

#[cfg(test)]
mod tests;
