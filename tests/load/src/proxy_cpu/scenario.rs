//! The loads.

use std::time::Duration;

use anyhow::Result;

use super::Setting;
use super::seconds;
use crate::generate::{Plan, PromptForm, Report, StreamOf, WindowMinimum};
use crate::loopback::Loopback;

/// After so long a request counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Streams that are only held open: as many tokens, a second apart, so that none ends while it counts.
const HELD: StreamOf = StreamOf {
    tokens: 120,
    spacing: Some(Duration::from_secs(1)),
};
/// Time limit for opening all of them.
const OPENING: Duration = Duration::from_secs(25);
/// Requests a second of the open loop.
const RATE: f64 = 500.0;

/// Kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Closed loop: requests of 1 KiB, replies of 1 KiB.
    #[value(name = "1k")]
    Kib1,
    /// Requests of 32 KiB, a quarter of which is new.
    #[value(name = "32k")]
    Kib32,
    /// Conversations of 32 KiB, of which the last turn (256 bytes) is new.
    #[value(name = "32k-turn")]
    Turn32,
    /// Streams of 200 tokens, one each 10 ms; the cost is per token.
    Sse,
    /// Bursts of streams of 5 tokens, one each 10 ms: the next begin together when all have ended.
    Burst,
    /// Requests of 1 KiB on one connection.
    One,
    /// Open loop: 500 requests of 1 KiB a second.
    Paced,
    /// Open streams (their number is `--held`), one token per second each; for memory.
    Held,
}

impl Scenario {
    /// All of them, in the order of the tables.
    pub(crate) const ALL: [Self; 8] = [
        Self::Kib1,
        Self::Kib32,
        Self::Turn32,
        Self::Sse,
        Self::Burst,
        Self::One,
        Self::Paced,
        Self::Held,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Kib1 => "1 KiB requests",
            Self::Kib32 => "32 KiB requests, a quarter new",
            Self::Turn32 => "32 KiB conversations, one turn new",
            Self::Sse => "streams of 200 tokens, one per 10 ms",
            Self::Burst => "bursts of streams of 5 tokens; latency of the first",
            Self::One => "1 KiB requests on one connection",
            Self::Paced => "500 requests of 1 KiB a second, open loop",
            Self::Held => "open streams, one token a second",
        }
    }

    /// Returns `true` if the cost is per token.
    fn streams(self) -> bool {
        matches!(self, Self::Sse | Self::Burst | Self::Held)
    }

    /// Returns the unit of the cost.
    pub(crate) fn unit(self) -> &'static str {
        if self.streams() { "token" } else { "request" }
    }

    pub(crate) fn units(self, report: &Report) -> u64 {
        if self.streams() {
            report.tokens
        } else {
            report.requests
        }
    }

    pub(super) fn plan(self, target: Loopback, prompt: PromptForm, setting: &Setting) -> Result<Plan> {
        let long = matches!(self, Self::Kib32 | Self::Turn32);
        let warm_up = seconds(setting.warm_up_s)?;
        Ok(Plan {
            target,
            prompt: if self == Self::Turn32 && prompt == PromptForm::Chat {
                PromptForm::Turns
            } else {
                prompt
            },
            body_bytes: if long { 32 * 1024 } else { 1024 },
            stream: match self {
                Self::Sse => Some(StreamOf {
                    tokens: 200,
                    spacing: None,
                }),
                Self::Burst => Some(StreamOf {
                    tokens: 5,
                    spacing: None,
                }),
                Self::Held => Some(HELD),
                _ => None,
            },
            connections: match self {
                Self::One => 1,
                Self::Held => setting.held,
                _ => setting.connections,
            },
            rate: (self == Self::Paced).then_some(RATE),
            bursts: self == Self::Burst,
            warm_up: if self == Self::Held { OPENING } else { warm_up },
            window: seconds(setting.window_s)?,
            minimum: WindowMinimum::default(),
            patience: if self == Self::Held {
                30 * PATIENCE
            } else {
                PATIENCE
            },
            waiting: setting.waiting(),
        })
    }
}
