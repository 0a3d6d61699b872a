//! Conversations to drive engines (or a router in front of them) with: as data, by seed, and a small client that
//! plays them and measures. Knows nothing of the engine but the text it is made for.
//!
//! The shape is that of multi-turn chat: sessions share a few system prompts, each turn repeats the history and
//! adds to it, and people think between turns. Where a session's turns land decides how much is cached.

mod driver;
mod event_stream;
mod summary;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::answer::{Answer, split_mix};

pub use driver::{DriveError, Driver, TurnError};
pub use summary::Summary;

/// What a workload looks like.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Equal workloads have equal sessions.
    pub seed: u64,
    /// The `model` of every body.
    pub model: String,
    /// Conversations.
    pub sessions: usize,
    /// Requests in each.
    pub turns: usize,
    /// Different system prompts, handed out at random; at least one.
    pub system_prompts: usize,
    /// Tokens of a system prompt (as the mock engine counts, as for the next).
    pub system_tokens: usize,
    /// Tokens a user says each turn.
    pub user_tokens: usize,
    /// `max_tokens` of every body.
    pub answer_tokens: u32,
    /// Mean pause between an answer and the next turn; each is drawn evenly from half to one and a half of it.
    pub think_time: Duration,
    /// First turns are spread evenly over this time.
    pub ramp: Duration,
}

impl Default for Workload {
    /// 24 sessions of 6 turns on 4 system prompts: half a million prompt tokens or so.
    fn default() -> Self {
        Self {
            seed: 0,
            model: "mock".to_owned(),
            sessions: 24,
            turns: 6,
            system_prompts: 4,
            system_tokens: 2000,
            user_tokens: 200,
            answer_tokens: 64,
            think_time: Duration::from_secs(2),
            ramp: Duration::from_secs(4),
        }
    }
}

/// One conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Unique in its workload, such as `session-3`.
    pub name: String,
    /// The `model` of its bodies.
    pub model: String,
    /// The system prompt.
    pub system: Arc<str>,
    /// What the user says, in order.
    pub turns: Vec<Turn>,
}

/// One request of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Waited before it, from the answer before (or the start of the run).
    pub pause: Duration,
    /// What is said.
    pub user: String,
    /// `max_tokens` of the body.
    pub max_tokens: u32,
}

impl Workload {
    /// Its conversations.
    #[must_use]
    pub fn multi_turn(&self) -> Vec<Session> {
        let systems: Vec<Arc<str>> = (0..self.system_prompts.max(1))
            .map(|n| self.text(&[0, n], self.system_tokens).into())
            .collect();
        let mut random = self.seed;
        let session = |n: usize| {
            let system = &systems[(split_mix(&mut random) % systems.len() as u64) as usize];
            let turn = |turn: usize| Turn {
                pause: if turn == 0 {
                    self.ramp.mul_f64(n as f64 / self.sessions as f64)
                } else {
                    self.think_time.mul_f64(0.5 + unit(&mut random))
                },
                user: self.text(&[1, n, turn], self.user_tokens),
                max_tokens: self.answer_tokens,
            };
            Session {
                name: format!("session-{n}"),
                model: self.model.clone(),
                system: Arc::clone(system),
                turns: (0..self.turns).map(turn).collect(),
            }
        };
        (0..self.sessions).map(session).collect()
    }

    /// A text of so many tokens, different for every key.
    fn text(&self, key: &[usize], tokens: usize) -> String {
        let key: Vec<u32> = key.iter().map(|&part| part as u32).collect();
        let mut words = Answer::new(!self.seed, &key);
        (0..tokens).map(|_| words.next_word()).collect()
    }
}

/// A number in 0..1.
fn unit(random: &mut u64) -> f64 {
    (split_mix(random) >> 11) as f64 / (1_u64 << 53) as f64
}

impl Session {
    /// The body of a turn for `/v1/chat/completions`, streaming with usage; `answers` are those of the turns
    /// before it.
    #[must_use]
    pub fn body(&self, turn: usize, answers: &[String]) -> Vec<u8> {
        let mut messages = vec![json!({"role": "system", "content": &*self.system})];
        for (said, answer) in self.turns.iter().zip(answers).take(turn) {
            messages.push(json!({"role": "user", "content": said.user}));
            messages.push(json!({"role": "assistant", "content": answer}));
        }
        let now = &self.turns[turn];
        messages.push(json!({"role": "user", "content": now.user}));
        let body = json!({
            "model": self.model, "messages": messages, "max_tokens": now.max_tokens,
            "stream": true, "stream_options": {"include_usage": true},
        });
        body.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokenize;

    fn small() -> Workload {
        Workload {
            sessions: 8,
            turns: 3,
            system_prompts: 2,
            system_tokens: 50,
            user_tokens: 7,
            ..Workload::default()
        }
    }

    #[test]
    fn a_workload_is_the_same_for_the_same_seed() {
        assert_eq!(small().multi_turn(), small().multi_turn());
        let other = Workload { seed: 1, ..small() };
        assert_ne!(small().multi_turn(), other.multi_turn());
    }

    #[test]
    fn sessions_share_system_prompts_and_nothing_else() {
        let sessions = small().multi_turn();
        let mut systems: Vec<_> = sessions.iter().map(|session| &*session.system).collect();
        systems.sort_unstable();
        systems.dedup();
        assert_eq!(systems.len(), 2);
        assert_eq!(tokenize(systems[0]).len(), 50);
        let mut said: Vec<_> = sessions
            .iter()
            .flat_map(|session| &session.turns)
            .map(|turn| &turn.user)
            .collect();
        assert!(said.iter().all(|text| tokenize(text).len() == 7));
        said.sort_unstable();
        said.dedup();
        assert_eq!(said.len(), 24);
    }

    #[test]
    fn a_turn_repeats_the_history() {
        let session = &small().multi_turn()[0];
        let body: serde_json::Value =
            serde_json::from_slice(&session.body(1, &["kato".to_owned()])).expect("json");
        let roles: Vec<_> = body["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .map(|message| message["role"].as_str().expect("role"))
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert_eq!(body["messages"][2]["content"], "kato");
        assert_eq!(body["messages"][3]["content"], session.turns[1].user);
    }
}
