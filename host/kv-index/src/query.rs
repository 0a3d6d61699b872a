//! Queries: the part of a prompt that each worker holds.

use std::cell::Cell;

use routing::{DpRank, Tier, WorkerId};

use crate::cache::KvCache;
use crate::core::IndexCore;
use crate::holder::Holder;
use crate::hybrid::{PathSpans, ends_at_gap, usable};
use crate::lanes::LaneId;
use crate::path::{BlockPath, NamedPath, PromptPath, SequencePath};
use crate::prompt::Prompt;
use crate::walk::{MatchDepth, PathWalk, TieredCache};
use crate::worker_table::QueryShape;

thread_local! {
    /// Buffers of the thread, taken for the time of a walk.
    static WALK: Cell<PathWalk> = Cell::default();
}

/// Leading prompt tokens that one worker holds, at its best rank: the rank with most of them on any tier, then on the
/// device, then the lowest number. Cumulative: device <= host <= any. It is one walk: host continues where the device
/// ends, disk and shared storage where host ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerMatch {
    /// Tokens in the accelerator's memory, or predicted there.
    pub device_tokens: u32,
    /// Tokens there or, after them, in host memory.
    pub host_tokens: u32,
    /// Tokens on any tier.
    pub any_tokens: u32,
    /// Tokens predicted on the device because [such a request was just sent](crate::SharedPrefixIndex::expect).
    pub expected_tokens: u32,
    /// Best rank.
    pub rank: DpRank,
}

/// Match of one cache, without predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankMatch {
    /// The cache.
    pub holder: Holder,
    /// Match.
    pub found: WorkerMatch,
}

/// Query by prompt, sequence hashes or engine hashes.
pub(crate) enum IndexQuery<'q, 't> {
    Prompt(&'q mut Prompt<'t>),
    Sequence {
        hashes: &'q [u64],
        block_size: u32,
    },
    /// Engine hashes of any of the `namers`.
    Names {
        names: &'q [u64],
        namers: &'q [WorkerId],
    },
}

/// A cache in a query.
#[derive(Debug)]
struct QueriedCache {
    row: usize,
    holder: Holder,
    block_size: u32,
    device: Option<LaneId>,
    expected: [Option<LaneId>; 2],
    /// Index among the tiered caches of its block size.
    tiered: Option<usize>,
}

/// All caches of a query that have one block size.
#[derive(Debug, Default)]
struct SizeGroup {
    caches: Vec<QueriedCache>,
    tiered: Vec<TieredCache>,
}

/// Caches by block size: nearly always one size.
#[derive(Debug, Default)]
struct SizeGroups(Vec<(u32, SizeGroup)>);

impl SizeGroups {
    fn of(&mut self, block_size: u32) -> &mut SizeGroup {
        let at = match self.0.iter().position(|(size, _)| *size == block_size) {
            Some(at) => at,
            None => {
                self.0.push((block_size, SizeGroup::default()));
                self.0.len() - 1
            }
        };
        &mut self.0[at].1
    }
}

impl IndexCore {
    /// Returns one match per worker, in order.
    pub(crate) fn matches(
        &self,
        query: &mut IndexQuery<'_, '_>,
        workers: &[WorkerId],
        out: &mut Vec<WorkerMatch>,
    ) {
        out.clear();
        out.resize(workers.len(), WorkerMatch::default());
        match self.rows.one_size().or_else(|| self.one_size_of(workers)) {
            Some(0) => {}
            Some(block_size) => self.match_plain(query, workers, block_size, out),
            None => {
                self.match_any(query, workers, out);
                out.iter_mut().for_each(WorkerMatch::count_expected);
            }
        }
    }

    /// Returns the block size of all these workers' caches if one plain walk covers them all.
    fn one_size_of(&self, workers: &[WorkerId]) -> Option<u32> {
        let mut size = 0;
        for &worker in workers {
            let row = self.rows.get(worker);
            match row.shape {
                QueryShape::Empty => {}
                QueryShape::Plain if size == 0 || size == row.block_size => size = row.block_size,
                QueryShape::Plain | QueryShape::Special => return None,
            }
        }
        Some(size)
    }

    /// Matches caches by one walk of all plain rows' lanes. It takes time for the holders of the first block only.
    fn match_plain(
        &self,
        query: &mut IndexQuery<'_, '_>,
        workers: &[WorkerId],
        block_size: u32,
        out: &mut [WorkerMatch],
    ) {
        let mut walk = WALK.take();
        walk.restart(self.rows.plain_lanes(), self.numbers.end());
        self.follow(query, block_size, |path| walk.run(&self.forest, path, &mut []));
        if self.rows.has_ranks() {
            for (&worker, out) in workers.iter().zip(&mut *out) {
                out.rank = self.rows.get(worker).rank;
            }
        }
        let is_ascending = workers.windows(2).all(|pair| pair[0] < pair[1]);
        for lane in walk.holders() {
            let worker = self.rows.owner(lane);
            let row = self.rows.get(worker);
            if row.block_size != block_size {
                continue;
            }
            let tokens = walk.depth(lane).saturating_mul(block_size);
            let is_expected = row.lanes[0] != Some(lane);
            if is_ascending {
                let at = position(workers, worker);
                at.into_iter()
                    .for_each(|at| out[at].raise_plain(tokens, is_expected));
            } else {
                let rows = workers
                    .iter()
                    .zip(&mut *out)
                    .filter(|(other, _)| **other == worker);
                rows.for_each(|(_, out)| out.raise_plain(tokens, is_expected));
            }
        }
        WALK.set(walk);
    }

    /// Matches caches of any kind.
    fn match_any(&self, query: &mut IndexQuery<'_, '_>, workers: &[WorkerId], out: &mut [WorkerMatch]) {
        let (mut parties, mut paths) = (SizeGroups::default(), Vec::new());
        for (row, &worker) in workers.iter().enumerate() {
            let known = self.rows.get(worker);
            let [device, current, previous] = known.lanes;
            let (device, rank) = match known.shape {
                QueryShape::Empty => continue,
                QueryShape::Plain => (device, known.rank),
                QueryShape::Special => {
                    self.add_caches(row, worker, &mut parties);
                    self.match_hybrids(query, worker, &mut paths, |found| out[row].raise(found.found));
                    (None, DpRank(0))
                }
            };
            parties.of(known.block_size).caches.push(QueriedCache {
                row,
                holder: Holder { worker, rank },
                block_size: known.block_size,
                device,
                expected: [current, previous],
                tiered: None,
            });
        }
        self.answer(query, parties, |row, found| out[row].raise(found.found));
    }

    /// Returns one match per cache of the workers, by worker and rank.
    pub(crate) fn rank_matches(
        &self,
        query: &mut IndexQuery<'_, '_>,
        workers: &[WorkerId],
        out: &mut Vec<RankMatch>,
    ) {
        out.clear();
        let (mut parties, mut paths) = (SizeGroups::default(), Vec::new());
        for (row, &worker) in workers.iter().enumerate() {
            self.add_caches(row, worker, &mut parties);
            self.match_hybrids(query, worker, &mut paths, |found| out.push(found));
        }
        self.answer(query, parties, |_, found| out.push(found));
        out.sort_unstable_by_key(|found| found.holder);
    }

    /// Adds a worker's caches that one walk covers.
    fn add_caches(&self, row: usize, worker: WorkerId, parties: &mut SizeGroups) {
        for (rank, cache) in self.caches.ranks(worker).filter(|(_, cache)| cache.is_plain()) {
            let holder = Holder { worker, rank: *rank };
            let block_size = cache.base;
            let lanes = |tiers: &'static [Tier]| {
                let on = move |lane: &&crate::cache::CacheLane| tiers.contains(&lane.tier);
                cache.lanes.iter().filter(on).map(|lane| lane.id)
            };
            let device = lanes(&[Tier::Device]).next();
            let slow = lanes(&[Tier::Disk, Tier::Shared])
                .chain(self.store_lanes(worker))
                .collect();
            let party = parties.of(block_size);
            party
                .tiered
                .push(TieredCache::new(device, lanes(&[Tier::Host]).next(), slow));
            party.caches.push(QueriedCache {
                row,
                holder,
                block_size,
                device,
                expected: [None; 2],
                tiered: Some(party.tiered.len() - 1),
            });
        }
    }

    fn answer(
        &self,
        query: &mut IndexQuery<'_, '_>,
        parties: SizeGroups,
        mut report: impl FnMut(usize, RankMatch),
    ) {
        for (block_size, SizeGroup { caches, mut tiered }) in parties.0 {
            let mut walk = PathWalk::new(self.numbers.end());
            for cache in &caches {
                let lanes = cache.expected.iter().chain([&cache.device]);
                lanes.flatten().for_each(|&lane| walk.add_lane(lane));
            }
            self.follow(query, block_size, |path| {
                walk.run(&self.forest, path, &mut tiered)
            });
            let depth = |lane: Option<LaneId>| lane.map_or(0, |lane| walk.depth(lane));
            for cache in caches {
                let device = depth(cache.device);
                let found = cache
                    .tiered
                    .map_or(MatchDepth::device(device), |at| tiered[at].depth);
                let expected = cache.expected.into_iter().map(depth).max().unwrap_or(0);
                let found = WorkerMatch {
                    device_tokens: found.device.saturating_mul(cache.block_size),
                    host_tokens: found.host.saturating_mul(cache.block_size),
                    any_tokens: found.any.saturating_mul(cache.block_size),
                    expected_tokens: expected.saturating_mul(cache.block_size),
                    rank: cache.holder.rank,
                };
                report(
                    cache.row,
                    RankMatch {
                        holder: cache.holder,
                        found,
                    },
                );
            }
        }
    }

    /// Matches a worker's caches of several groups, or of layers with windows or states. `paths` caches the path of
    /// each block size, once to its first gap and once to its end.
    fn match_hybrids(
        &self,
        query: &mut IndexQuery<'_, '_>,
        worker: WorkerId,
        paths: &mut Vec<((u32, bool), PathSpans)>,
        mut report: impl FnMut(RankMatch),
    ) {
        for (rank, cache) in self.caches.ranks(worker).filter(|(_, cache)| !cache.is_plain()) {
            let holder = Holder { worker, rank: *rank };
            let key = (cache.base, ends_at_gap(cache));
            let at = match paths.iter().position(|(known, _)| *known == key) {
                Some(at) => at,
                None => {
                    let path =
                        self.follow(query, cache.base, |path| PathSpans::of(&self.forest, path, key.1));
                    paths.push((key, path));
                    paths.len() - 1
                }
            };
            let found = self.hybrid_match(holder, cache, &paths[at].1);
            report(RankMatch { holder, found });
        }
    }

    fn hybrid_match(&self, holder: Holder, cache: &KvCache, path: &PathSpans) -> WorkerMatch {
        let upto = |slowest: Tier| {
            let mut lanes: Vec<(u32, LaneId)> = cache
                .lanes
                .iter()
                .filter(|lane| lane.tier <= slowest)
                .map(|lane| (lane.group, lane.id))
                .collect();
            if slowest == Tier::Shared {
                // A store has whole blocks, of every group.
                for store in self.store_lanes(holder.worker) {
                    lanes.extend(cache.groups.iter().map(|group| (group.index, store)));
                }
            }
            usable(&self.forest, cache, &lanes, path)
        };
        WorkerMatch {
            device_tokens: upto(Tier::Device),
            host_tokens: upto(Tier::Host),
            any_tokens: upto(Tier::Shared),
            expected_tokens: 0,
            rank: holder.rank,
        }
    }

    /// Follows the query's path in blocks of one size. Sequence hashes of a client have one size only, engine hashes
    /// any.
    fn follow<R: Default>(
        &self,
        query: &mut IndexQuery<'_, '_>,
        block_size: u32,
        along: impl FnOnce(&mut dyn BlockPath) -> R,
    ) -> R {
        match query {
            IndexQuery::Prompt(prompt) => along(&mut PromptPath { prompt, block_size }),
            IndexQuery::Sequence {
                hashes,
                block_size: size,
            } if *size == block_size => along(&mut SequencePath(hashes)),
            IndexQuery::Sequence { .. } => R::default(),
            IndexQuery::Names { names, namers } => along(&mut NamedPath {
                names,
                naming: self.naming(namers),
                behind: None,
            }),
        }
    }
}

/// Returns the position of a worker in an ascending list. A pool's workers mostly have consecutive numbers.
fn position(workers: &[WorkerId], worker: WorkerId) -> Option<usize> {
    let guess = worker.0.wrapping_sub(workers.first()?.0) as usize;
    if workers.get(guess) == Some(&worker) {
        return Some(guess);
    }
    workers.binary_search(&worker).ok()
}

impl WorkerMatch {
    /// Takes the match of a better rank.
    fn raise(&mut self, found: Self) {
        let expected = self.expected_tokens.max(found.expected_tokens);
        let order = |found: &Self| {
            (
                found.any_tokens,
                found.device_tokens,
                std::cmp::Reverse(found.rank),
            )
        };
        if order(&found) > order(self) {
            *self = found;
        }
        self.expected_tokens = expected;
    }

    /// Takes the match of a lane of a plain cache: of its device, or of predictions.
    fn raise_plain(&mut self, tokens: u32, is_expected: bool) {
        if is_expected {
            self.expected_tokens = self.expected_tokens.max(tokens);
        }
        self.device_tokens = self.device_tokens.max(tokens);
        self.host_tokens = self.device_tokens;
        self.any_tokens = self.device_tokens;
    }

    /// Counts predicted blocks as held on the device.
    fn count_expected(&mut self) {
        self.device_tokens = self.device_tokens.max(self.expected_tokens);
        self.host_tokens = self.host_tokens.max(self.device_tokens);
        self.any_tokens = self.any_tokens.max(self.host_tokens);
    }
}
