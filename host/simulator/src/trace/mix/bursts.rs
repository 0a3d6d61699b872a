//! Conversations among which crowds send prompts about the same text at the same time: an article goes round, a class
//! begins, a job starts.

use super::conversation::{self, Conversations};
use super::draws::Draws;
use super::session::{Author, Session};
use super::text::{BlockIds, Text};

/// Share of the other sessions that a crowd follows.
const CROWDS: f64 = 0.015;

/// Members of a crowd, fewest and most: half of all sessions come in crowds.
const MEMBERS: (u32, u32) = (20, 110);

/// Tokens of the text that a crowd shares, fewest and most.
const SHARED_TOKENS: (u32, u32) = (1_500, 12_000);

/// Tokens that each of them adds, fewest and most.
const OWN_TOKENS: (u32, u32) = (20, 600);

/// Mean interval between the members of a crowd, as a part of the mean interval of the others: a crowd comes within a
/// few seconds.
const RUSH: f64 = 0.05;

/// Draws conversations, and the crowds among them.
#[derive(Debug)]
pub(super) struct SharedTextBursts {
    calm: Conversations,
    /// Text that the present crowd shares, and the number of its requests still to come.
    crowd: Option<(Text, u32)>,
}

impl SharedTextBursts {
    pub(super) fn new(ids: &mut BlockIds) -> Self {
        Self {
            calm: Conversations::new(ids),
            crowd: None,
        }
    }
}

impl Author for SharedTextBursts {
    fn session(&mut self, draws: &mut Draws, ids: &mut BlockIds) -> Session {
        let Some((shared, to_come)) = self.crowd.take() else {
            if draws.chance(CROWDS) {
                let tokens = draws.tokens(SHARED_TOKENS.0, SHARED_TOKENS.1);
                let shared = self.calm.system().clone().and(tokens, ids);
                self.crowd = Some((shared, draws.tokens(MEMBERS.0, MEMBERS.1)));
            }
            return self.calm.session(draws, ids);
        };
        let own = draws.tokens(OWN_TOKENS.0, OWN_TOKENS.1);
        let prompt = shared.clone().and(own, ids);
        self.crowd = (to_come > 1).then(|| (shared, to_come - 1));
        Session {
            wait: draws.wait() * RUSH,
            turns: conversation::turns(prompt, draws, ids),
        }
    }
}
