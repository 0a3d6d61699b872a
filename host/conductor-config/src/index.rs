//! `[index]`: size of the prefix index, lifetime of its predictions, and its fill at start.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::document::section::Section;

/// `[index]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexConfig {
    /// Most distinct KV blocks over all workers; beyond it the index evicts the least used.
    pub max_blocks: u64,
    /// Lifetime of predicted blocks of a prompt that was just sent to a worker, before its events confirm them; zero
    /// for none.
    pub expect_for: Duration,
    /// Longest time from the start in which the router is not ready because replays fill the index; zero for none.
    pub fill_within: Duration,
}

/// A cache without events, as described by the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssumeCacheConfig {
    /// Tokens in a worker's cache.
    pub tokens: u64,
    /// Tokens per block.
    pub block_size: u32,
    /// Lifetime of blocks that no request uses again.
    pub lifetime: Duration,
}

const LONGEST_EXPECTATION: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);
const LONGEST_FILL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);
const LIFETIMES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);

impl Default for IndexConfig {
    fn default() -> Self {
        Self {
            max_blocks: 10_000_000,
            expect_for: Duration::from_secs(2),
            fill_within: Duration::from_secs(10),
        }
    }
}

pub(crate) fn read(section: Option<Section<'_>>) -> IndexConfig {
    let default = IndexConfig::default();
    let Some(mut index) = section else {
        return default;
    };
    let config = IndexConfig {
        max_blocks: index.count("max-blocks", default.max_blocks, 1_000..=250_000_000),
        expect_for: index.duration("expect-for", default.expect_for, LONGEST_EXPECTATION),
        fill_within: index.duration("fill-within", default.fill_within, LONGEST_FILL),
    };
    index.finish();
    config
}

/// Reads `assume-cache` of a pool.
pub(crate) fn read_assumed(mut cache: Section<'_>) -> AssumeCacheConfig {
    let config = AssumeCacheConfig {
        tokens: cache.count("tokens", 100_000, 1..=1_000_000_000),
        block_size: u32::try_from(cache.count("block-size", 16, 1..=65_536)).expect("within a range of u32s"),
        lifetime: cache.duration("for", Duration::from_secs(120), LIFETIMES),
    };
    cache.finish();
    config
}
