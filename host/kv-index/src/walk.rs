//! One walk along a path, for all caches at once.
//!
//! A cache's match is one prefix: as far as the device holds it, from there as far as host memory does, from there as far as
//! disk or a shared store does. It never goes back to a faster tier, as no engine does.

use crate::coverage::Coverage;
use crate::forest::Forest;
use crate::lanes::{LaneBits, LaneId};
use crate::path::Path;

/// How far a cache's match goes, in blocks. Cumulative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    pub(crate) device: u32,
    pub(crate) host: u32,
    pub(crate) any: u32,
}

impl Depth {
    pub(crate) fn device(device: u32) -> Self {
        Self {
            device,
            host: device,
            any: device,
        }
    }
}

/// A cache with more than a device: its match goes on where the device's ends.
#[derive(Debug, Default)]
pub(crate) struct Tiered {
    device: Option<LaneId>,
    host: Option<LaneId>,
    /// Its disk and the stores it shares.
    slow: Vec<LaneId>,
    pub(crate) depth: Depth,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Device,
    Host,
    Slow,
    Ended,
}

impl Tiered {
    pub(crate) fn new(device: Option<LaneId>, host: Option<LaneId>, slow: Vec<LaneId>) -> Self {
        Self {
            device,
            host,
            slow,
            ..Self::default()
        }
    }
}

/// What a walk needs and leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Device lanes that match so far.
    alive: LaneBits,
    next: LaneBits,
    /// How far each device lane did, in blocks.
    depth: Vec<u32>,
}

impl Walk {
    /// A walk for lanes below `end`.
    pub(crate) fn new(end: usize) -> Self {
        Self {
            alive: LaneBits::with_room(end),
            next: LaneBits::with_room(end),
            depth: vec![0; end],
        }
    }

    pub(crate) fn ask(&mut self, lane: LaneId) {
        self.alive.insert(lane);
    }

    /// How far a device lane matched, after the walk.
    pub(crate) fn depth(&self, lane: LaneId) -> u32 {
        self.depth[lane.0 as usize]
    }

    pub(crate) fn run(&mut self, forest: &Forest, path: &mut dyn Path, tiered: &mut [Tiered]) {
        let mut base = 0;
        while let Some(id) = path.enter(forest, base) {
            let run = forest.run(id);
            let reach = if tiered.iter().any(|cache| cache.phase != Phase::Ended) {
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
            if self.alive.is_empty() && tiered.iter().all(|cache| cache.phase == Phase::Ended) {
                break;
            }
        }
        let Self { alive, depth, .. } = self;
        alive.iter().for_each(|lane| depth[lane.0 as usize] = base);
        for cache in tiered.iter_mut().filter(|cache| cache.phase == Phase::Device) {
            cache.depth = Depth::device(cache.device.map_or(0, |lane| self.depth(lane)));
        }
    }

    /// Past the first `matched` blocks of a run: who holds them all lives on.
    fn step(&mut self, coverage: &Coverage, base: u32, matched: u32) {
        coverage.whole.intersect(&self.alive, &mut self.next);
        let Self { alive, next, depth } = self;
        for prefix in &coverage.prefixes {
            if alive.contains(prefix.lane) {
                if prefix.end >= matched {
                    next.insert(prefix.lane);
                } else {
                    alive.remove(prefix.lane);
                    depth[prefix.lane.0 as usize] = base + prefix.end;
                }
            }
        }
        alive.keep(next, |lane| depth[lane.0 as usize] = base);
    }

    /// The slower tiers of one cache along the same blocks.
    fn step_down(&self, cache: &mut Tiered, coverage: &Coverage, base: u32, matched: u32, len: u32) {
        if cache.phase == Phase::Device {
            if cache.device.is_some_and(|lane| self.alive.contains(lane)) {
                return;
            }
            cache.depth = Depth::device(cache.device.map_or(0, |lane| self.depth(lane)));
            cache.phase = Phase::Host;
        }
        if cache.phase == Phase::Host {
            let from = cache.depth.host.max(base) - base;
            let end = cache.host.map_or(from, |lane| {
                coverage.end_from(lane, from, len).min(matched).max(from)
            });
            cache.depth.host = base + end;
            cache.depth.any = base + end;
            if end < matched {
                cache.phase = Phase::Slow;
            }
        }
        if cache.phase == Phase::Slow {
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
                cache.phase = Phase::Ended;
            }
        }
    }
}
