//! Caches of hybrid models: several groups of layers with separate blocks and requirements.
//!
//! A prefix of n tokens is usable if every group holds what it needs to continue there. Full attention needs all
//! blocks before n, a window of w tokens the blocks of the last w - 1 tokens before n, a state the block that ends at
//! n. n is a whole number of blocks in every group, as in vLLM, where a hit length is a multiple of all groups' block
//! sizes. Groups with longer blocks are stored in blocks of the cache's shortest size: vLLM names such a block as the
//! last short one in it.

use routing::Attention;

use crate::cache::{CacheGroup, KvCache};
use crate::forest::RunForest;
use crate::lanes::LaneId;
use crate::path::BlockPath;
use crate::run::RunId;

/// Part of a run on a path: `blocks` blocks of it, `base` blocks after the path's start.
#[derive(Debug, Clone, Copy)]
struct PathSpan {
    run: RunId,
    base: u32,
    blocks: u32,
}

/// All indexed parts of one path.
#[derive(Debug, Default)]
pub(crate) struct PathSpans(Vec<PathSpan>);

impl PathSpans {
    /// Follows a path to its end, or with `to_gap` to the first block that is not indexed.
    pub(crate) fn of(forest: &RunForest, path: &mut dyn BlockPath, to_gap: bool) -> Self {
        let mut stretches = Vec::new();
        let mut base = 0;
        while base < path.blocks() {
            // Windows and states do not need earlier blocks, so a gap does not end the path.
            let Some(id) = path.enter(forest, base) else {
                if to_gap {
                    break;
                }
                base += 1;
                continue;
            };
            let run = forest.run(id);
            run.mark_used();
            let blocks = path.matched(forest, run, base, run.len);
            stretches.push(PathSpan {
                run: id,
                base,
                blocks,
            });
            base += blocks;
        }
        Self(stretches)
    }

    /// Returns the token ranges of the path that any of the lanes holds, joined and in order. Each held block stands
    /// for `stride` blocks of `base` tokens, of which it is the last.
    fn held(&self, forest: &RunForest, lanes: &[LaneId], base: u32, stride: u32) -> Vec<(u32, u32)> {
        let mut spans: Vec<(u32, u32)> = Vec::new();
        for stretch in &self.0 {
            let run = forest.run(stretch.run);
            for &lane in lanes {
                let held = run.coverage.spans(lane, run.len);
                let held = held.filter(|&(start, _)| start < stretch.blocks);
                let span = |(start, end): (u32, u32)| {
                    let start = (stretch.base + start + 1).saturating_sub(stride);
                    (start, stretch.base + end.min(stretch.blocks))
                };
                spans.extend(held.map(span));
            }
        }
        spans.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for (start, end) in spans {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        let tokens = |(start, end): (u32, u32)| (start.saturating_mul(base), end.saturating_mul(base));
        joined.into_iter().map(tokens).collect()
    }
}

/// Returns `true` if no block after a gap of the path can be of use: one group needs each block before it.
pub(crate) fn ends_at_gap(cache: &KvCache) -> bool {
    let needs_all = |group: &CacheGroup| group.attention == Attention::Full && group.block_size == cache.base;
    cache.groups.iter().any(needs_all)
}

/// Requirement of one group, and the ranges held for it.
struct GroupNeed {
    group: CacheGroup,
    base: u32,
    held: Vec<(u32, u32)>,
}

impl GroupNeed {
    fn allows(&self, end: u32) -> bool {
        let start = match self.group.attention {
            Attention::Full => 0,
            Attention::Window { tokens } => (end + 1).saturating_sub(tokens),
            Attention::State => end.saturating_sub(self.base),
            Attention::Unknown => return true,
        };
        let at = self.held.partition_point(|span| span.0 <= start);
        start >= end || (at > 0 && self.held[at - 1].1 >= end)
    }

    /// Returns an upper bound of the usable prefix.
    fn bound(&self) -> u32 {
        match self.group.attention {
            Attention::Full => self
                .held
                .first()
                .filter(|span| span.0 == 0)
                .map_or(0, |span| span.1),
            _ => self.held.last().map_or(0, |span| span.1),
        }
    }
}

/// Returns the longest usable prefix in tokens over these lanes of the cache, each with its group's number.
pub(crate) fn usable(forest: &RunForest, cache: &KvCache, lanes: &[(u32, LaneId)], path: &PathSpans) -> u32 {
    let needs: Vec<GroupNeed> = cache
        .groups
        .iter()
        .map(|&group| {
            let of_group = lanes.iter().filter(|(index, _)| *index == group.index);
            let lanes: Vec<LaneId> = of_group.map(|&(_, lane)| lane).collect();
            let stride = match group.attention {
                // A state is located where its block ends, whatever the block spans.
                Attention::State => 1,
                _ => group.block_size / cache.base,
            };
            let held = path.held(forest, &lanes, cache.base, stride);
            let base = cache.base;
            GroupNeed { group, base, held }
        })
        .collect();
    let unit = needs
        .iter()
        .fold(1, |unit, need| common_multiple(unit, need.group.block_size));
    let bound = needs.iter().map(GroupNeed::bound).min().unwrap_or(0);
    let mut end = bound - bound % unit;
    while end > 0 && !needs.iter().all(|need| need.allows(end)) {
        end -= unit;
    }
    end
}

fn common_multiple(a: u32, b: u32) -> u32 {
    let (mut larger, mut smaller) = (a.max(b), a.min(b));
    while smaller > 0 {
        (larger, smaller) = (smaller, larger % smaller);
    }
    (a / larger.max(1)).saturating_mul(b)
}
