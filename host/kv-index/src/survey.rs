//! Survey of the prefixes at which chains branch: system prompts and the like.
//!
//! The index counts no requests. The number of chains that continue a prefix stands for its popularity. A survey works
//! in small steps, each under the lock, and stops at its limits. What changes between two steps may be missed.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};

use routing::WorkerId;

use crate::core::IndexCore;
use crate::lanes::LaneId;
use crate::run::{BlockRun, RunId};

/// Runs that one step reads.
const RUNS_PER_STEP: u32 = 256;
/// Blocks that one step reads.
const BLOCKS_PER_STEP: u32 = 2048;

/// Limits of a survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SurveyLimits {
    /// Most prefixes in the result.
    pub prefixes: usize,
    /// Most chains that are read.
    pub runs: u32,
    /// Most blocks that are read.
    pub blocks: u32,
}

/// A prefix, and what holds and continues it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedPrefix {
    /// Sequence hash of the prefix.
    pub hash: u64,
    /// Length in blocks.
    pub blocks: u32,
    /// Length in tokens; 0 if no worker holds it any more.
    pub tokens: u32,
    /// Number of different continuations.
    pub continuations: u32,
    /// Workers that hold its last block on any tier, or are expected to.
    pub workers: Vec<WorkerId>,
}

/// Result of a survey.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixSurvey {
    /// Prefixes with the most continuations first, then the longest.
    pub prefixes: Vec<SharedPrefix>,
    /// `false` if a limit ended it early.
    pub is_complete: bool,
}

/// Part of a run that is still to be read.
#[derive(Debug)]
struct RunPart {
    run: RunId,
    parent: Option<u64>,
    /// Blocks before the run.
    base: u32,
    /// Blocks of the run that were read.
    from: u32,
}

/// A place that may be in the result.
#[derive(Debug)]
struct FoundPlace {
    prefix: SharedPrefix,
    run: RunId,
    at: u32,
}

/// A survey under way.
#[derive(Debug)]
pub(crate) struct SurveyWork {
    limits: SurveyLimits,
    phase: SurveyPhase,
    /// Runs by the prefix that they continue.
    children: HashMap<u64, Vec<RunId>>,
    parts: VecDeque<RunPart>,
    found: Vec<FoundPlace>,
    owners: HashMap<LaneId, WorkerId>,
    blocks: u32,
    result: PrefixSurvey,
}

#[derive(Debug)]
enum SurveyPhase {
    /// Collects the runs by their parents, from this number on.
    Runs(u32),
    /// Finds the depth of each branch, from the roots on.
    Depths,
    /// Finds the holders of the most popular, one at each step.
    Holders,
}

impl SurveyWork {
    pub(crate) fn new(limits: SurveyLimits) -> Self {
        Self {
            limits,
            phase: SurveyPhase::Runs(1),
            children: HashMap::new(),
            parts: VecDeque::new(),
            found: Vec::new(),
            owners: HashMap::new(),
            blocks: 0,
            result: PrefixSurvey {
                is_complete: true,
                ..PrefixSurvey::default()
            },
        }
    }

    /// Does a small part of the work. Returns `true` if there is more to do.
    pub(crate) fn step(&mut self, core: &IndexCore) -> bool {
        match self.phase {
            SurveyPhase::Runs(next) => self.read_runs(core, next),
            SurveyPhase::Depths => self.read_part(core),
            SurveyPhase::Holders => return self.find_holders(core),
        }
        true
    }

    pub(crate) fn into_result(self) -> PrefixSurvey {
        self.result
    }

    fn read_runs(&mut self, core: &IndexCore, next: u32) {
        let runs = core.forest.runs();
        let end = runs.end();
        let last = end.min(self.limits.runs.saturating_add(1));
        let upto = last.min(next.saturating_add(RUNS_PER_STEP));
        for id in (next..upto).map(RunId) {
            let Some(run) = runs.find(id).filter(|run| used(run) > 0) else {
                continue;
            };
            match run.parent {
                Some(parent) => self.children.entry(parent).or_default().push(id),
                None => self.parts.push_back(RunPart {
                    run: id,
                    parent: None,
                    base: 0,
                    from: 0,
                }),
            }
        }
        self.result.is_complete = last == end;
        self.phase = if upto < last {
            SurveyPhase::Runs(upto)
        } else {
            SurveyPhase::Depths
        };
    }

    fn read_part(&mut self, core: &IndexCore) {
        let Some(part) = self.parts.pop_front() else {
            return self.choose(core);
        };
        if self.blocks >= self.limits.blocks {
            self.result.is_complete = false;
            return self.choose(core);
        }
        let Some(run) = core.forest.runs().find(part.run) else {
            return;
        };
        let len = used(run);
        // Another chain may have the number by now.
        if run.parent != part.parent || part.from >= len {
            return;
        }
        let upto = len.min(part.from.saturating_add(BLOCKS_PER_STEP));
        self.blocks = self.blocks.saturating_add(upto - part.from);
        for at in part.from..upto {
            let content = core.forest.content(run, at);
            let children = self.children.remove(&content).unwrap_or_default();
            let is_end = at + 1 == len;
            if children.is_empty() && !is_end {
                continue;
            }
            let blocks = part.base.saturating_add(at + 1);
            self.found.push(FoundPlace {
                prefix: SharedPrefix {
                    hash: content,
                    blocks,
                    tokens: 0,
                    continuations: children.len() as u32 + u32::from(!is_end),
                    workers: Vec::new(),
                },
                run: part.run,
                at,
            });
            self.parts.extend(children.into_iter().map(|run| RunPart {
                run,
                parent: Some(content),
                base: blocks,
                from: 0,
            }));
        }
        if upto < len {
            self.parts.push_front(RunPart { from: upto, ..part });
        }
    }

    /// Keeps the most popular places, the best one last.
    fn choose(&mut self, core: &IndexCore) {
        let most = self.limits.prefixes;
        let order = |found: &FoundPlace| Reverse((found.prefix.continuations, found.prefix.blocks));
        if most > 0 && self.found.len() > most {
            self.found.select_nth_unstable_by_key(most - 1, order);
        }
        self.found.truncate(most);
        self.found.sort_by_key(order);
        self.found.reverse();
        self.owners = core.lane_owners();
        self.phase = SurveyPhase::Holders;
    }

    fn find_holders(&mut self, core: &IndexCore) -> bool {
        let Some(FoundPlace { mut prefix, run, at }) = self.found.pop() else {
            return false;
        };
        let run = core.forest.runs().find(run).filter(|run| at < run.len);
        if let Some(run) = run.filter(|run| core.forest.content(run, at) == prefix.hash) {
            let lanes = run.coverage.lanes().into_iter();
            let holding = lanes.filter(|&lane| run.covers(lane, at));
            let workers: BTreeSet<_> = holding
                .filter_map(|lane| self.owners.get(&lane).copied())
                .collect();
            prefix.workers = workers.into_iter().collect();
            let block_size = prefix.workers.first().and_then(|&first| core.block_size(first));
            prefix.tokens = prefix.blocks.saturating_mul(block_size.unwrap_or(0));
            self.result.prefixes.push(prefix);
        }
        true
    }
}

/// Returns the number of leading blocks up to the last held one.
fn used(run: &BlockRun) -> u32 {
    run.coverage.end(run.len).min(run.len)
}

impl IndexCore {
    /// Returns the worker of each lane.
    fn lane_owners(&self) -> HashMap<LaneId, WorkerId> {
        let mut owners = HashMap::new();
        for worker in self.caches.workers() {
            let lanes = self.caches.ranks(worker).flat_map(|(_, cache)| &cache.lanes);
            owners.extend(lanes.map(|lane| (lane.id, worker)));
        }
        for (&worker, expected) in &self.expected {
            owners.extend(expected.lanes().map(|lane| (lane, worker)));
        }
        owners
    }
}
