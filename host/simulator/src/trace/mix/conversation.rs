//! Chats of people, with the statistics of Mooncake's conversation trace (FAST '25).
//!
//! Every table here was counted in `conversation_trace.jsonl`. A prompt that continues a former one was found by its
//! blocks: it shares more than the first, which all prompts have. Of those that continue, 85 % contain the whole former
//! prompt, and 15 % begin like it.

use super::draws::{Draws, Percentiles};
use super::session::{Author, Session, Turn};
use super::text::{BlockIds, CONTEXT_TOKENS, Text};

/// The system prompt that all share: no prompt is shorter.
const SYSTEM_TOKENS: u32 = 890;

/// Tokens of a first prompt.
const FIRST: &Percentiles = &[
    (0.0, 891.0),
    (0.02, 895.0),
    (0.10, 905.0),
    (0.20, 1_090.0),
    (0.25, 1_340.0),
    (0.30, 1_760.0),
    (0.35, 2_770.0),
    (0.40, 3_910.0),
    (0.45, 4_590.0),
    (0.50, 5_260.0),
    (0.60, 7_420.0),
    (0.70, 10_800.0),
    (0.75, 13_100.0),
    (0.80, 15_900.0),
    (0.85, 19_500.0),
    (0.90, 25_600.0),
    (0.93, 31_700.0),
    (0.95, 38_500.0),
    (0.97, 51_800.0),
    (0.98, 67_200.0),
    (0.99, 89_900.0),
    (0.995, 111_800.0),
    (1.0, 126_000.0),
];

/// Tokens by which a prompt is longer than the former one and its answer. Some answers come back shorter than they were
/// made.
const ADDED: &Percentiles = &[
    (0.0, -300.0),
    (0.01, -300.0),
    (0.05, -22.0),
    (0.10, -5.0),
    (0.20, 7.0),
    (0.40, 16.0),
    (0.50, 26.0),
    (0.60, 52.0),
    (0.70, 172.0),
    (0.75, 356.0),
    (0.80, 695.0),
    (0.82, 1_190.0),
    (0.85, 2_530.0),
    (0.90, 4_200.0),
    (0.95, 6_900.0),
    (0.98, 11_700.0),
    (0.99, 16_700.0),
    (0.998, 35_000.0),
    (1.0, 60_000.0),
];

/// Tokens of an answer; 2,000 was the most that it might have.
const ANSWER: &Percentiles = &[
    (0.0, 1.0),
    (0.01, 3.0),
    (0.03, 3.0),
    (0.05, 10.0),
    (0.10, 24.0),
    (0.20, 100.0),
    (0.25, 156.0),
    (0.30, 213.0),
    (0.40, 291.0),
    (0.50, 350.0),
    (0.60, 399.0),
    (0.70, 447.0),
    (0.80, 504.0),
    (0.90, 597.0),
    (0.95, 698.0),
    (0.97, 802.0),
    (0.98, 893.0),
    (0.99, 1_120.0),
    (0.995, 1_570.0),
    (0.998, 2_000.0),
    (1.0, 2_000.0),
];

/// Seconds from a prompt's arrival to the next one's.
const PAUSE_S: &Percentiles = &[
    (0.0, 4.0),
    (0.01, 12.0),
    (0.05, 30.0),
    (0.10, 42.0),
    (0.20, 60.0),
    (0.30, 75.0),
    (0.40, 96.0),
    (0.50, 123.0),
    (0.60, 162.0),
    (0.70, 222.0),
    (0.80, 318.0),
    (0.90, 483.0),
    (0.95, 618.0),
    (0.97, 756.0),
    (0.98, 1_032.0),
    (0.99, 1_482.0),
    (1.0, 3_000.0),
];

/// Share of the former prompt's blocks that a prompt keeps which only begins like it.
const KEPT: &Percentiles = &[
    (0.0, 0.03),
    (0.05, 0.05),
    (0.10, 0.07),
    (0.20, 0.10),
    (0.40, 0.17),
    (0.50, 0.21),
    (0.60, 0.29),
    (0.70, 0.40),
    (0.80, 0.52),
    (0.90, 0.83),
    (0.95, 0.91),
    (1.0, 0.99),
];

/// Length of such a prompt, as a multiple of the former one's.
const REWRITTEN: &Percentiles = &[
    (0.0, 0.28),
    (0.05, 0.50),
    (0.10, 0.61),
    (0.20, 0.72),
    (0.30, 0.84),
    (0.40, 0.93),
    (0.50, 0.99),
    (0.60, 1.03),
    (0.70, 1.08),
    (0.80, 1.16),
    (0.90, 1.38),
    (0.95, 1.73),
    (0.98, 2.49),
    (1.0, 4.0),
];

/// Share of conversations that go on after their first, second, ... turn; the last one stands for all further ones.
const GOES_ON: [f64; 7] = [0.36, 0.48, 0.66, 0.75, 0.80, 0.83, 0.85];

/// Prompts shorter than this one leave no second block by which a next turn would be known: the trace shows none.
const SHORT_TOKENS: u32 = 1_024;

/// Prompts longer than this one are continued more rarely: the context is nearly used up.
const LONG_TOKENS: u32 = 40_000;

/// Factor by which it is rarer.
const LONG_GOES_ON: f64 = 0.6;

/// Draws conversations of people who all have the same system prompt.
#[derive(Debug)]
pub(super) struct Conversations {
    system: Text,
}

impl Conversations {
    pub(super) fn new(ids: &mut BlockIds) -> Self {
        Self {
            system: Text::new(SYSTEM_TOKENS, ids),
        }
    }

    /// Returns the common beginning of all conversations.
    pub(super) fn system(&self) -> &Text {
        &self.system
    }
}

impl Author for Conversations {
    fn session(&mut self, draws: &mut Draws, ids: &mut BlockIds) -> Session {
        let own = draws.length(FIRST) - SYSTEM_TOKENS;
        let prompt = self.system.clone().and(own, ids);
        Session {
            wait: draws.wait(),
            turns: turns(prompt, draws, ids),
        }
    }
}

/// Returns a conversation from its first prompt to its end.
pub(super) fn turns(mut prompt: Text, draws: &mut Draws, ids: &mut BlockIds) -> Vec<Turn> {
    let mut after_s = 0.0;
    let mut turns = Vec::new();
    while prompt.tokens() <= CONTEXT_TOKENS {
        let answer = draws.length(ANSWER);
        turns.push(Turn::request(&prompt, answer, after_s, ids));
        if !goes_on(turns.len(), prompt.tokens(), draws) {
            break;
        }
        after_s += draws.value(PAUSE_S);
        prompt = next_prompt(prompt, answer, draws, ids);
    }
    turns
}

fn goes_on(turns: usize, prompt_tokens: u32, draws: &mut Draws) -> bool {
    let share = GOES_ON[turns.min(GOES_ON.len()) - 1];
    match prompt_tokens {
        ..SHORT_TOKENS => false,
        SHORT_TOKENS..LONG_TOKENS => draws.chance(share),
        LONG_TOKENS.. => draws.chance(share * LONG_GOES_ON),
    }
}

fn next_prompt(prompt: Text, answer: u32, draws: &mut Draws, ids: &mut BlockIds) -> Text {
    // The longer a prompt, the more of it may have been put there for that turn only (measured).
    let rewritten = match prompt.tokens() {
        ..8_000 => 0.03,
        8_000..LONG_TOKENS => 0.28,
        LONG_TOKENS.. => 0.15,
    };
    if !draws.chance(rewritten) {
        let added = f64::from(answer) + draws.value(ADDED);
        return prompt.and(added.max(0.0) as u32, ids);
    }
    let tokens = f64::from(prompt.tokens()) * draws.value(REWRITTEN);
    let kept = prompt.full_blocks() as f64 * draws.value(KEPT);
    let kept = prompt.cut((kept as usize).max(2));
    let added = (tokens as u32)
        .saturating_sub(kept.tokens())
        .max(SHORT_TOKENS / 4);
    kept.and(added, ids)
}
