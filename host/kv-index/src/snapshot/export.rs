//! Export of a cache in small steps, each under the lock.

use std::collections::{HashMap, HashSet};

use crate::cache::CacheLane;
use crate::core::IndexCore;
use crate::forest::BlockPosition;
use crate::holder::Holder;
use crate::run::{BlockRun, RunId};
use crate::snapshot::ancestors::AncestorSearch;
use crate::snapshot::{CacheSnapshot, MOST_CHAIN_BLOCKS, SnapshotChain, SnapshotGroup, SnapshotHold};

/// Runs that one step examines.
pub(super) const RUNS_PER_STEP: u32 = 256;
/// Blocks that one step reads.
pub(super) const BLOCKS_PER_STEP: usize = 2048;

/// An export under way.
#[derive(Debug)]
pub(crate) struct CacheExport {
    holder: Holder,
    /// Lanes of the cache; `None` before the first step.
    lanes: Option<Vec<CacheLane>>,
    /// The next block to read.
    next: BlockPosition,
    /// Blocks that may still be read.
    left: usize,
    snapshot: Option<CacheSnapshot>,
    /// Search under way; `None` while the held blocks are read.
    search: Option<AncestorSearch>,
}

impl CacheExport {
    pub(crate) fn new(holder: Holder, most_blocks: usize) -> Self {
        Self {
            holder,
            lanes: None,
            next: BlockPosition { run: RunId(1), at: 0 },
            left: most_blocks,
            snapshot: None,
            search: None,
        }
    }

    /// Begins a search for ancestors, or a further one for theirs. Returns `false` if none is needed. It reads the
    /// whole snapshot, so call it without the lock.
    pub(crate) fn search(&mut self) -> bool {
        let next = |snapshot| AncestorSearch::new(snapshot, self.search.as_ref());
        self.search = self.snapshot.as_ref().and_then(next);
        self.search.is_some()
    }

    /// Does a small part of the work. Returns `true` if there is more to do.
    pub(crate) fn step(&mut self, core: &IndexCore) -> bool {
        let Some(lanes) = self.lanes_of(core) else {
            return false;
        };
        if let (Some(search), Some(snapshot)) = (&mut self.search, &mut self.snapshot) {
            return search.step(core, &lanes, &mut self.left, snapshot);
        }
        let end = core.forest.runs().end();
        let (last, before) = (self.next.run.0.saturating_add(RUNS_PER_STEP), self.left);
        while self.next.run.0 < end.min(last) {
            if before - self.left >= BLOCKS_PER_STEP {
                return true;
            }
            let run = core.forest.runs().find(self.next.run);
            let held = run.map_or(0, |run| held_end(run, &lanes));
            match run.filter(|_| self.next.at < held) {
                None => {
                    self.next = BlockPosition {
                        run: RunId(self.next.run.0 + 1),
                        at: 0,
                    }
                }
                Some(_) if self.left == 0 => return self.stop(),
                Some(run) => self.read(core, run, held, &lanes),
            }
        }
        self.next.run.0 < end
    }

    pub(crate) fn into_result(self) -> Option<CacheSnapshot> {
        let mut snapshot = self.snapshot?;
        snapshot.chains = parents_first(snapshot.chains);
        Some(snapshot)
    }

    /// Returns the lanes of the cache. Without a cache, or if its lanes have changed since the first step, there is no
    /// result.
    fn lanes_of(&mut self, core: &IndexCore) -> Option<Vec<CacheLane>> {
        let cache = core.caches.get(self.holder);
        let lanes = cache.map(|cache| cache.lanes.clone());
        let is_same = match (&self.lanes, &lanes) {
            (Some(before), Some(now)) => {
                before.len() == now.len() && before.iter().zip(now).all(|(before, now)| before.id == now.id)
            }
            (before, _) => before.is_none(),
        };
        let (Some(cache), true) = (cache, is_same) else {
            self.snapshot = None;
            return None;
        };
        self.lanes.clone_from(&lanes);
        self.snapshot.get_or_insert_with(|| CacheSnapshot {
            base: cache.base,
            groups: cache
                .groups
                .iter()
                .map(|group| SnapshotGroup {
                    index: group.index,
                    attention: group.attention,
                    block_size: group.block_size,
                })
                .collect(),
            ambiguous: cache.ambiguous_names(),
            chains: Vec::new(),
            is_whole: true,
        });
        lanes
    }

    fn stop(&mut self) -> bool {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.is_whole = false;
        }
        false
    }

    /// Reads the next blocks of a run, up to the last held one.
    fn read(&mut self, core: &IndexCore, run: &BlockRun, held: u32, lanes: &[CacheLane]) {
        let from = self.next.at;
        let most = MOST_CHAIN_BLOCKS.min(self.left) as u32;
        let to = held.min(from.saturating_add(most));
        let chain = chain_of(core, run, from, to, lanes);
        self.left -= (to - from) as usize;
        self.next.at = to;
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.chains.push(chain);
        }
    }
}

/// Returns the blocks `from..to` of a run, and the lanes that hold them.
pub(super) fn chain_of(
    core: &IndexCore,
    run: &BlockRun,
    from: u32,
    to: u32,
    lanes: &[CacheLane],
) -> SnapshotChain {
    let forest = &core.forest;
    let parent = match from.checked_sub(1) {
        Some(before) => Some(forest.content(run, before)),
        None => run.parent,
    };
    let holds = lanes.iter().flat_map(|lane| holds_of(core, run, lane, from, to));
    SnapshotChain {
        parent,
        contents: (from..to).map(|at| forest.content(run, at)).collect(),
        holds: holds.collect(),
    }
}

/// Orders chains so that each comes after the one that has its parent.
fn parents_first(chains: Vec<SnapshotChain>) -> Vec<SnapshotChain> {
    let parents: HashSet<u64> = chains.iter().filter_map(|chain| chain.parent).collect();
    let known: HashSet<u64> = chains
        .iter()
        .flat_map(|chain| &chain.contents)
        .filter(|content| parents.contains(content))
        .copied()
        .collect();
    let mut waiting: HashMap<u64, Vec<SnapshotChain>> = HashMap::new();
    let (mut ready, mut ordered) = (Vec::new(), Vec::with_capacity(chains.len()));
    for chain in chains {
        match chain.parent.filter(|parent| known.contains(parent)) {
            Some(parent) => waiting.entry(parent).or_default().push(chain),
            None => ready.push(chain),
        }
    }
    while let Some(chain) = ready.pop() {
        for content in &chain.contents {
            ready.extend(waiting.remove(content).into_iter().flatten());
        }
        ordered.push(chain);
    }
    ordered
}

/// Returns the end of the last block that any of the lanes holds.
pub(super) fn held_end(run: &BlockRun, lanes: &[CacheLane]) -> u32 {
    let ends = lanes
        .iter()
        .filter_map(|lane| Some(run.coverage.spans(lane.id, run.len).last()?.1));
    ends.max().unwrap_or(0).min(run.len)
}

/// Returns the blocks `from..to` of a run that a lane holds.
fn holds_of(core: &IndexCore, run: &BlockRun, lane: &CacheLane, from: u32, to: u32) -> Vec<SnapshotHold> {
    let within = |(start, end): (u32, u32)| (start.max(from), end.min(to));
    let spans = run.coverage.spans(lane.id, run.len).map(within);
    let names = &core.lanes[lane.id.0 as usize];
    let hold = |(start, end): (u32, u32)| {
        let mut hold = SnapshotHold {
            tier: lane.tier,
            group: lane.group,
            start: start - from,
            names: Vec::with_capacity((end - start) as usize),
            further: Vec::new(),
        };
        for at in start..end {
            let block = core.forest.block_of(run, at);
            let mut names = names.names_of(block, core.forest.name(run, at));
            let place = hold.names.len() as u32;
            // A held block has a name.
            hold.names.push(names.next().unwrap_or_default());
            hold.further.extend(names.map(|name| (place, name)));
        }
        hold
    };
    spans.filter(|(start, end)| start < end).map(hold).collect()
}
