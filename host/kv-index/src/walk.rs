//! Walk along a path, for all caches at once.
//!
//! A cache's match is one prefix: the device's part, then host memory, then disk or a shared store. It never returns
//! to a faster tier, as in the engines.

use crate::coverage::Coverage;
use crate::forest::RunForest;
use crate::lanes::{LaneBits, LaneId};
use crate::path::BlockPath;

/// Length of a cache's match in blocks, cumulative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MatchDepth {
    pub(crate) device: u32,
    pub(crate) host: u32,
    pub(crate) any: u32,
}

impl MatchDepth {
    pub(crate) fn device(device: u32) -> Self {
        Self {
            device,
            host: device,
            any: device,
        }
    }
}

/// A cache with more tiers than the device: its match continues where the device's ends.
#[derive(Debug, Default)]
pub(crate) struct TieredCache {
    device: Option<LaneId>,
    host: Option<LaneId>,
    /// Lanes of its disk and of the stores it shares.
    slow: Vec<LaneId>,
    pub(crate) depth: MatchDepth,
    phase: WalkPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum WalkPhase {
    #[default]
    Device,
    Host,
    Slow,
    Ended,
}

impl TieredCache {
    pub(crate) fn new(device: Option<LaneId>, host: Option<LaneId>, slow: Vec<LaneId>) -> Self {
        Self {
            device,
            host,
            slow,
            ..Self::default()
        }
    }
}

/// State and result of a walk.
#[derive(Debug, Default)]
pub(crate) struct PathWalk {
    /// Device lanes that still match.
    alive: LaneBits,
    next: LaneBits,
    /// Device lanes that hold the first block.
    holders: LaneBits,
    /// Matched blocks of each device lane.
    depth: Vec<u32>,
}

impl PathWalk {
    /// Creates a walk for lanes below `end`.
    pub(crate) fn new(end: usize) -> Self {
        Self {
            alive: LaneBits::with_room(end),
            next: LaneBits::with_room(end),
            holders: LaneBits::with_room(end),
            depth: vec![0; end],
        }
    }

    /// Begins another walk, for all of these lanes, which are below `end`.
    pub(crate) fn restart(&mut self, lanes: &LaneBits, end: usize) {
        self.alive.copy_from(lanes);
        self.next.clear();
        self.holders.clear();
        self.depth.clear();
        self.depth.resize(end, 0);
    }

    pub(crate) fn add_lane(&mut self, lane: LaneId) {
        self.alive.insert(lane);
    }

    /// Returns the matched blocks of a device lane, after the walk.
    pub(crate) fn depth(&self, lane: LaneId) -> u32 {
        self.depth[lane.0 as usize]
    }

    /// Returns the device lanes with a match, after the walk.
    pub(crate) fn holders(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.holders.iter()
    }

    pub(crate) fn run(&mut self, forest: &RunForest, path: &mut dyn BlockPath, tiered: &mut [TieredCache]) {
        let mut base = 0;
        while let Some(id) = path.enter(forest, base) {
            let run = forest.run(id);
            let reach = if tiered.iter().any(|cache| cache.phase != WalkPhase::Ended) {
                run.len
            } else {
                run.coverage.reach(&self.alive, &mut self.next, run.len)
            };
            if reach == 0 {
                break;
            }
            run.mark_used();
            let matched = path.matched(forest, run, base, reach);
            self.step(&run.coverage, base, matched);
            for cache in &mut *tiered {
                self.step_down(cache, &run.coverage, base, matched, run.len);
            }
            base += matched;
            if self.alive.is_empty() && tiered.iter().all(|cache| cache.phase == WalkPhase::Ended) {
                break;
            }
        }
        if base > 0 {
            let Self { alive, depth, .. } = self;
            alive.iter().for_each(|lane| depth[lane.0 as usize] = base);
        }
        for cache in tiered.iter_mut().filter(|cache| cache.phase == WalkPhase::Device) {
            cache.depth = MatchDepth::device(cache.device.map_or(0, |lane| self.depth(lane)));
        }
    }

    /// Advances past the first `matched` blocks of a run. Lanes that hold all of them remain.
    fn step(&mut self, coverage: &Coverage, base: u32, matched: u32) {
        coverage.whole.intersect(&self.alive, &mut self.next);
        let Self {
            alive,
            next,
            holders,
            depth,
        } = self;
        for prefix in &coverage.prefixes {
            if alive.contains(prefix.lane) {
                if prefix.end >= matched {
                    next.insert(prefix.lane);
                } else {
                    alive.remove(prefix.lane);
                    depth[prefix.lane.0 as usize] = base + prefix.end;
                    if base == 0 {
                        holders.insert(prefix.lane);
                    }
                }
            }
        }
        if base > 0 {
            alive.keep(next, |lane| depth[lane.0 as usize] = base);
        } else {
            // Nearly all lanes end here, where most prompts begin differently. Their depth is 0 already.
            alive.keep(next, |_| {});
            holders.add_all(alive);
        }
    }

    /// Advances the slower tiers of one cache along the same blocks.
    fn step_down(&self, cache: &mut TieredCache, coverage: &Coverage, base: u32, matched: u32, len: u32) {
        if cache.phase == WalkPhase::Device {
            if cache.device.is_some_and(|lane| self.alive.contains(lane)) {
                return;
            }
            cache.depth = MatchDepth::device(cache.device.map_or(0, |lane| self.depth(lane)));
            cache.phase = WalkPhase::Host;
        }
        if cache.phase == WalkPhase::Host {
            let from = cache.depth.host.max(base) - base;
            let end = cache.host.map_or(from, |lane| {
                coverage.end_from(lane, from, len).min(matched).max(from)
            });
            cache.depth.host = base + end;
            cache.depth.any = base + end;
            if end < matched {
                cache.phase = WalkPhase::Slow;
            }
        }
        if cache.phase == WalkPhase::Slow {
            let mut end = cache.depth.any - base;
            loop {
                let further = cache
                    .slow
                    .iter()
                    .map(|&lane| coverage.end_from(lane, end, len))
                    .max();
                match further {
                    Some(further) if further > end && end < matched => end = further,
                    _ => break,
                }
            }
            cache.depth.any = base + end.min(matched);
            if end < matched {
                cache.phase = WalkPhase::Ended;
            }
        }
    }
}
