//! Facts of a trace: lengths, prefixes that repeat, and the hits that a cache without limits would have.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::request::{Request, Trace};

/// A trace's figures, as the table of traces in the project's research has them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TraceFacts {
    /// Their number.
    pub requests: usize,
    /// Seconds from the first arrival to the last.
    pub duration_s: f64,
    /// Requests a second over that time; 0 if the time is 0.
    pub per_second: f64,
    /// Different times of arrival. Far fewer than requests: the recording rounded them (see [`Trace::spread`]).
    pub distinct_arrivals: usize,
    /// Prompt tokens.
    pub prompt: Lengths,
    /// Output tokens.
    pub output: Lengths,
    /// Blocks of all prompts.
    pub blocks: usize,
    /// Different ones among them.
    pub unique_blocks: usize,
    /// Share of the different ones that occur once, 0 to 1.
    pub seen_once: f64,
    /// Different first blocks: 1 where everybody shares a system prompt.
    pub first_blocks: usize,
    /// Tokens that fill the different blocks of the prompts.
    pub unique_tokens: u64,
    /// Share of all blocks that lie in a prefix of an earlier prompt and its answer: the hit ratio of a pool without
    /// limits.
    pub ideal_block_hit: f64,
    /// Ideal hit ratio in prompt tokens.
    pub ideal_token_hit: f64,
}

/// Lengths in tokens. A percentile is the smallest length that this share of requests does not exceed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Lengths {
    /// Their sum over their number.
    pub mean: f64,
    /// The median.
    pub p50: u32,
    /// Exceeded by one in ten.
    pub p90: u32,
    /// Exceeded by one in a hundred.
    pub p99: u32,
    /// The longest.
    pub max: u32,
}

impl TraceFacts {
    /// Counts. All figures of an empty trace are 0.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let requests = trace.requests.as_slice();
        let duration_s = trace.duration_us() as f64 / 1e6;
        let mut occurrences: HashMap<u64, u32> = HashMap::new();
        let mut answered: HashSet<u64> = HashSet::new();
        let (mut hit_blocks, mut hit_tokens) = (0, 0);
        for request in requests {
            let hits = request
                .blocks
                .iter()
                .take_while(|&block| occurrences.contains_key(block) || answered.contains(block))
                .count();
            hit_blocks += hits;
            hit_tokens += (hits as u64 * u64::from(trace.block_tokens)).min(u64::from(request.prompt_tokens));
            for &block in &request.blocks {
                *occurrences.entry(block).or_default() += 1;
            }
            // A prompt that repeats an answer follows it, so the answer is cached by then.
            answered.extend(request.grown_blocks.iter());
        }
        let blocks = total(requests, |request| request.blocks.len());
        let prompt_tokens = total(requests, |request| request.prompt_tokens as usize);
        let once = occurrences.values().filter(|&&count| count == 1).count();
        Self {
            requests: requests.len(),
            duration_s,
            per_second: share(requests.len() as f64, duration_s),
            distinct_arrivals: distinct(requests, |request| Some(request.at_us)),
            prompt: Lengths::of(requests.iter().map(|request| request.prompt_tokens)),
            output: Lengths::of(requests.iter().map(|request| request.output_tokens)),
            blocks,
            unique_blocks: occurrences.len(),
            seen_once: share(once as f64, occurrences.len() as f64),
            first_blocks: distinct(requests, |request| request.blocks.first().copied()),
            unique_tokens: occurrences.len() as u64 * u64::from(trace.block_tokens),
            ideal_block_hit: share(hit_blocks as f64, blocks as f64),
            ideal_token_hit: share(hit_tokens as f64, prompt_tokens as f64),
        }
    }
}

impl Lengths {
    fn of(lengths: impl Iterator<Item = u32>) -> Self {
        let mut lengths: Vec<u32> = lengths.collect();
        lengths.sort_unstable();
        let sum: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        let percentile = |percent: usize| {
            let rank = (lengths.len() * percent).div_ceil(100);
            lengths.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self {
            mean: share(sum as f64, lengths.len() as f64),
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            max: percentile(100),
        }
    }
}

/// Returns the share; 0 of nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn total(requests: &[Request], figure: impl Fn(&Request) -> usize) -> usize {
    requests.iter().map(figure).sum()
}

fn distinct(requests: &[Request], figure: impl Fn(&Request) -> Option<u64>) -> usize {
    requests.iter().filter_map(figure).collect::<HashSet<_>>().len()
}

#[cfg(test)]
mod tests;
