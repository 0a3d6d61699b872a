//! Cost profiles of workers: prompts, copies of cached blocks, steps of a batch. Pure arithmetic, without a queue.
//!
//! Times are microseconds of a worker of speed 1 whose link is as fast as in the profile.

mod file;
mod fit;

use serde::{Deserialize, Serialize};

pub use self::file::ProfileError;
pub use self::fit::{Fit, FitFrom, FitQuality, StepWork, TooFew};

/// A model of costs, by where its figures come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Profile {
    /// LLaMA3-70B on a node of eight A800, by the Mooncake paper's figures.
    Paper(PaperProfile),
    /// The polynomials of Dynamo's mocker.
    Mocker(MockerProfile),
    /// Lines through what a router has measured.
    Fitted(FittedProfile),
}

/// Section 9 of `mooncake-paper.md`: causal attention and the layers' products at a share of the peak, and a constant.
#[derive(Debug, Clone, PartialEq)]
pub struct PaperProfile {
    /// Transformer layers.
    pub layers: u32,
    /// Width of a layer (FAST '25, table 1: `d`).
    pub width: u32,
    /// Peak compute of the node's accelerators, in floating point operations a second.
    pub flops: f64,
    /// The share of it that a prompt reaches.
    pub utilisation: f64,
    /// Spent on every prompt, in microseconds.
    pub fixed_us: f64,
    /// Size of a token's keys and values, in bytes.
    pub kv_bytes: f64,
    /// Bandwidth of the link to other nodes, in bytes a second.
    pub link: f64,
    /// Bandwidth from host memory to the device, in bytes a second.
    pub host: f64,
    /// Bandwidth from disk to the device, in bytes a second. Not from the paper: one NVMe drive.
    pub disk: f64,
    /// A decode step that reads no keys and values, in microseconds.
    pub step_us: f64,
    /// Cost of a resident token in a step, in nanoseconds.
    pub step_ns_per_token: f64,
    /// Tokens whose keys and values fit beside the weights.
    pub kv_tokens: u64,
}

impl Default for PaperProfile {
    fn default() -> Self {
        Self {
            layers: 80,
            width: 8_192,
            flops: 8.0 * 312e12,
            utilisation: 0.5,
            fixed_us: 20_000.0,
            kv_bytes: 327_680.0,
            link: 87e9,
            host: 128e9,
            disk: 6e9,
            step_us: 26_700.0,
            step_ns_per_token: 53.0,
            kv_tokens: 1_350_000,
        }
    }
}

impl PaperProfile {
    /// Counts `layers · (2·d·(n² − p²) + 22·d²·(n − p))` operations for tokens `p..n`.
    fn prefill_us(&self, start: f64, end: f64) -> f64 {
        let width = f64::from(self.width);
        let attention = 2.0 * width * (end * end - start * start);
        let products = 22.0 * width * width * (end - start);
        f64::from(self.layers) * (attention + products) / (self.flops * self.utilisation) * 1e6
    }
}

/// Dynamo's mocker: a prompt's time is a polynomial of its new tokens, a step's of the share of blocks in use.
#[derive(Debug, Clone, PartialEq)]
pub struct MockerProfile {
    /// Milliseconds by the square of the new tokens, by the new tokens, and for every prompt.
    pub prefill_ms: [f64; 3],
    /// Milliseconds by the square of the used share, by the used share, and for every step.
    pub step_ms: [f64; 3],
    /// Tokens that fit: 16,384 blocks of 64.
    pub kv_tokens: u64,
    /// Microseconds to bring a token's keys and values from another worker: 128 KiB at 64 GB/s.
    pub transfer_us: f64,
    /// Time of loading from host memory, at the paper's 128 GB/s.
    pub host_us: f64,
    /// Time of loading from disk, at 6 GB/s.
    pub disk_us: f64,
}

impl Default for MockerProfile {
    fn default() -> Self {
        Self {
            prefill_ms: [4.210e-7, 1.518e-2, 16.5],
            step_ms: [-25.74, 54.01, 5.74],
            kv_tokens: 16_384 * 64,
            transfer_us: 131_072.0 / 64e3,
            host_us: 131_072.0 / 128e3,
            disk_us: 131_072.0 / 6e3,
        }
    }
}

/// Lines with the terms of [`routing::CostModel`]: milliseconds, and milliseconds a thousand tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FittedProfile {
    /// Costs of a prompt: for every prompt, by its uncached tokens, by its cached tokens.
    pub prefill_ms: [f64; 3],
    /// Costs of a transfer: for every prompt taken over, by its tokens.
    pub transfer_ms: [f64; 2],
    /// Costs of a step: for every step, by the request (not by a thousand), by the resident tokens.
    pub step_ms: [f64; 3],
    /// Cost by the tokens loaded from host memory.
    pub host_ms: f64,
    /// Cost by the tokens loaded from disk.
    pub disk_ms: f64,
    /// Tokens that fit.
    pub kv_tokens: u64,
    /// Bandwidth of the link that the transfers were measured on, in gigabits a second.
    pub link_gbps: f64,
}

impl Default for Profile {
    fn default() -> Self {
        Self::Paper(PaperProfile::default())
    }
}

impl Profile {
    /// Returns the time to compute a prompt of so many tokens, the first `cached` of which are there already. At least
    /// one is always computed.
    #[must_use]
    pub fn prefill_us(&self, prompt: u32, cached: u32) -> u64 {
        let start = cached.min(prompt.saturating_sub(1));
        whole(self.prefill_fixed_us() + self.piece_us(start, prompt, true))
    }

    /// Returns the time to bring so many tokens from another worker over a link without other transfers.
    #[must_use]
    pub fn transfer_us(&self, tokens: u32) -> u64 {
        let tokens = f64::from(tokens);
        whole(match self {
            Self::Paper(paper) => tokens * paper.kv_bytes / paper.link * 1e6,
            Self::Mocker(mocker) => tokens * mocker.transfer_us,
            Self::Fitted(_) if tokens == 0.0 => 0.0,
            Self::Fitted(fitted) => fitted.transfer_ms[0] * 1e3 + fitted.transfer_ms[1] * tokens,
        })
    }

    /// Returns the time to load so many tokens from host memory.
    #[must_use]
    pub fn load_us(&self, tokens: u32) -> u64 {
        let tokens = f64::from(tokens);
        whole(match self {
            Self::Paper(paper) => tokens * paper.kv_bytes / paper.host * 1e6,
            Self::Mocker(mocker) => tokens * mocker.host_us,
            Self::Fitted(fitted) => tokens * fitted.host_ms,
        })
    }

    /// Returns the time to load so many tokens from disk.
    #[must_use]
    pub fn disk_load_us(&self, tokens: u32) -> u64 {
        let tokens = f64::from(tokens);
        whole(match self {
            Self::Paper(paper) => tokens * paper.kv_bytes / paper.disk * 1e6,
            Self::Mocker(mocker) => tokens * mocker.disk_us,
            Self::Fitted(fitted) => tokens * fitted.disk_ms,
        })
    }

    /// Returns the time of one step of so many requests that hold so many tokens together: the time between their
    /// tokens.
    #[must_use]
    pub fn step_us(&self, batch: u32, kv_tokens: u64) -> u64 {
        let tokens = kv_tokens as f64;
        whole(match self {
            Self::Paper(paper) => paper.step_us + paper.step_ns_per_token * tokens / 1e3,
            Self::Mocker(mocker) => {
                let used = (tokens / mocker.kv_tokens as f64).min(1.0);
                let [square, slope, constant] = mocker.step_ms;
                (square * used * used + slope * used + constant) * 1e3
            }
            Self::Fitted(fitted) => {
                let [constant, by_request, by_thousand] = fitted.step_ms;
                (constant + by_request * f64::from(batch)) * 1e3 + by_thousand * tokens
            }
        })
    }

    /// Returns the tokens of running requests that a worker holds.
    #[must_use]
    pub fn kv_capacity_tokens(&self) -> u64 {
        match self {
            Self::Paper(paper) => paper.kv_tokens,
            Self::Mocker(mocker) => mocker.kv_tokens,
            Self::Fitted(fitted) => fitted.kv_tokens,
        }
    }

    /// Returns the link of [`Self::transfer_us`], in gigabits a second.
    #[must_use]
    pub fn link_gbps(&self) -> f64 {
        match self {
            Self::Paper(paper) => paper.link * 8.0 / 1e9,
            Self::Mocker(_) => 512.0,
            Self::Fitted(fitted) => fitted.link_gbps,
        }
    }

    /// Returns the part of [`Self::prefill_us`] that a step takes once, however many prompts it computes. Fitted costs
    /// have none: their constant is each prompt's own.
    pub(crate) fn prefill_fixed_us(&self) -> f64 {
        match self {
            Self::Paper(paper) => paper.fixed_us,
            Self::Mocker(mocker) => mocker.prefill_ms[2] * 1e3,
            Self::Fitted(_) => 0.0,
        }
    }

    /// Returns the time to compute tokens `start..end` of a prompt; `first` where everything before them was cached.
    pub(crate) fn piece_us(&self, start: u32, end: u32, first: bool) -> f64 {
        let (start, end) = (f64::from(start), f64::from(end));
        match self {
            Self::Paper(paper) => paper.prefill_us(start, end),
            Self::Mocker(mocker) => {
                let new = end - start;
                (mocker.prefill_ms[0] * new * new + mocker.prefill_ms[1] * new) * 1e3
            }
            Self::Fitted(fitted) => {
                let [fixed, uncached, cached] = fitted.prefill_ms;
                let once = if first { fixed * 1e3 + cached * start } else { 0.0 };
                once + uncached * (end - start)
            }
        }
    }
}

/// Rounds a time. Nothing takes less than no time.
pub(crate) fn whole(us: f64) -> u64 {
    us.round() as u64
}

#[cfg(test)]
mod tests;
