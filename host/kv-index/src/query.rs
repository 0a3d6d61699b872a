//! Answering questions: how much of a prompt each worker holds.

use routing::{DpRank, Tier, WorkerId};

use crate::cache::Cache;
use crate::core::Core;
use crate::hybrid::{Stretches, usable};
use crate::lanes::LaneId;
use crate::path::{NamedPath, Path, PromptPath, SequencePath};
use crate::prompt::Prompt;
use crate::rows::Shape;
use crate::shared::Holder;
use crate::walk::{Depth, Tiered, Walk};

/// How many of a prompt's first tokens one worker holds, at its best rank: the one with most of them on any tier, then on the
/// device, then the lowest. Cumulative: device <= host <= any, and one walk: host goes on where the device ends, disk and
/// shared storage where host ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerMatch {
    /// All of them in the accelerator's memory, or expected there.
    pub device_tokens: u32,
    /// All of them there or, from there on, in host memory.
    pub host_tokens: u32,
    /// All of them on some tier.
    pub any_tokens: u32,
    /// How many are expected on the device because [such a request was just sent](crate::SharedPrefixIndex::expect).
    pub expected_tokens: u32,
    /// The rank that holds them.
    pub rank: DpRank,
}

/// The match of one cache, without what is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankMatch {
    /// Whose.
    pub holder: Holder,
    /// How much.
    pub found: WorkerMatch,
}

/// Something to ask for.
pub(crate) enum Question<'q, 't> {
    Prompt(&'q mut Prompt<'t>),
    Sequence {
        hashes: &'q [u64],
        block_size: u32,
    },
    /// Names that any of the `namers` gives to blocks.
    Names {
        names: &'q [u64],
        namers: &'q [WorkerId],
    },
}

/// A cache that is asked.
#[derive(Debug)]
struct Asked {
    row: usize,
    holder: Holder,
    block_size: u32,
    device: Option<LaneId>,
    expected: [Option<LaneId>; 2],
    /// Its place among the tiered ones of its block size.
    tiered: Option<usize>,
}

/// Everyone who is asked about a path of one block size.
#[derive(Debug, Default)]
struct Party {
    asked: Vec<Asked>,
    tiered: Vec<Tiered>,
}

/// The parties, by block size: nearly always one.
#[derive(Debug, Default)]
struct Parties(Vec<(u32, Party)>);

impl Parties {
    fn of(&mut self, block_size: u32) -> &mut Party {
        let at = match self.0.iter().position(|(size, _)| *size == block_size) {
            Some(at) => at,
            None => {
                self.0.push((block_size, Party::default()));
                self.0.len() - 1
            }
        };
        &mut self.0[at].1
    }
}

impl Core {
    /// One answer a worker, in order.
    pub(crate) fn matches(
        &self,
        question: &mut Question<'_, '_>,
        workers: &[WorkerId],
        out: &mut Vec<WorkerMatch>,
    ) {
        out.clear();
        out.resize(workers.len(), WorkerMatch::default());
        match self.one_size(workers) {
            Some(0) => {}
            Some(block_size) => self.match_plain(question, workers, block_size, out),
            None => self.match_any(question, workers, out),
        }
        out.iter_mut().for_each(WorkerMatch::count_expected);
    }

    /// The block size of all these workers' caches, if one plain walk answers for them all.
    fn one_size(&self, workers: &[WorkerId]) -> Option<u32> {
        let mut size = 0;
        for &worker in workers {
            let row = self.rows.get(worker);
            match row.shape {
                Shape::Empty => {}
                Shape::Plain if size == 0 || size == row.block_size => size = row.block_size,
                Shape::Plain | Shape::Special => return None,
            }
        }
        Some(size)
    }

    fn match_plain(
        &self,
        question: &mut Question<'_, '_>,
        workers: &[WorkerId],
        block_size: u32,
        out: &mut [WorkerMatch],
    ) {
        let mut walk = Walk::new(self.numbers.end());
        for &worker in workers {
            let lanes = self.rows.get(worker).lanes.into_iter();
            lanes.flatten().for_each(|lane| walk.ask(lane));
        }
        self.follow(question, block_size, |path| walk.run(&self.forest, path, &mut []));
        let tokens =
            |lane: Option<LaneId>| lane.map_or(0, |lane| walk.depth(lane).saturating_mul(block_size));
        for (&worker, out) in workers.iter().zip(out) {
            let row = self.rows.get(worker);
            let device = tokens(row.lanes[0]);
            *out = WorkerMatch {
                device_tokens: device,
                host_tokens: device,
                any_tokens: device,
                expected_tokens: tokens(row.lanes[1]).max(tokens(row.lanes[2])),
                rank: row.rank,
            };
        }
    }

    /// The same for caches of any kind.
    fn match_any(&self, question: &mut Question<'_, '_>, workers: &[WorkerId], out: &mut [WorkerMatch]) {
        let (mut parties, mut paths) = (Parties::default(), Vec::new());
        for (row, &worker) in workers.iter().enumerate() {
            let known = self.rows.get(worker);
            let [device, current, previous] = known.lanes;
            let (device, rank) = match known.shape {
                Shape::Empty => continue,
                Shape::Plain => (device, known.rank),
                Shape::Special => {
                    self.ask_caches(row, worker, &mut parties);
                    self.ask_hybrids(question, worker, &mut paths, |found| out[row].raise(found.found));
                    (None, DpRank(0))
                }
            };
            parties.of(known.block_size).asked.push(Asked {
                row,
                holder: Holder { worker, rank },
                block_size: known.block_size,
                device,
                expected: [current, previous],
                tiered: None,
            });
        }
        self.answer(question, parties, |row, found| out[row].raise(found.found));
    }

    /// One answer for each cache of the workers, by worker and rank.
    pub(crate) fn rank_matches(
        &self,
        question: &mut Question<'_, '_>,
        workers: &[WorkerId],
        out: &mut Vec<RankMatch>,
    ) {
        out.clear();
        let (mut parties, mut paths) = (Parties::default(), Vec::new());
        for (row, &worker) in workers.iter().enumerate() {
            self.ask_caches(row, worker, &mut parties);
            self.ask_hybrids(question, worker, &mut paths, |found| out.push(found));
        }
        self.answer(question, parties, |_, found| out.push(found));
        out.sort_unstable_by_key(|found| found.holder);
    }

    /// Adds a worker's caches that one walk answers for.
    fn ask_caches(&self, row: usize, worker: WorkerId, parties: &mut Parties) {
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
                .push(Tiered::new(device, lanes(&[Tier::Host]).next(), slow));
            party.asked.push(Asked {
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
        question: &mut Question<'_, '_>,
        parties: Parties,
        mut tell: impl FnMut(usize, RankMatch),
    ) {
        for (block_size, Party { asked, mut tiered }) in parties.0 {
            let mut walk = Walk::new(self.numbers.end());
            for cache in &asked {
                let lanes = cache.expected.iter().chain([&cache.device]);
                lanes.flatten().for_each(|&lane| walk.ask(lane));
            }
            self.follow(question, block_size, |path| {
                walk.run(&self.forest, path, &mut tiered)
            });
            let depth = |lane: Option<LaneId>| lane.map_or(0, |lane| walk.depth(lane));
            for cache in asked {
                let device = depth(cache.device);
                let found = cache.tiered.map_or(Depth::device(device), |at| tiered[at].depth);
                let expected = cache.expected.into_iter().map(depth).max().unwrap_or(0);
                let found = WorkerMatch {
                    device_tokens: found.device.saturating_mul(cache.block_size),
                    host_tokens: found.host.saturating_mul(cache.block_size),
                    any_tokens: found.any.saturating_mul(cache.block_size),
                    expected_tokens: expected.saturating_mul(cache.block_size),
                    rank: cache.holder.rank,
                };
                tell(
                    cache.row,
                    RankMatch {
                        holder: cache.holder,
                        found,
                    },
                );
            }
        }
    }

    /// Answers for a worker's caches of several groups, or of layers that forget. `paths` keeps what was found for each block size.
    fn ask_hybrids(
        &self,
        question: &mut Question<'_, '_>,
        worker: WorkerId,
        paths: &mut Vec<(u32, Stretches)>,
        mut tell: impl FnMut(RankMatch),
    ) {
        for (rank, cache) in self.caches.ranks(worker).filter(|(_, cache)| !cache.is_plain()) {
            let holder = Holder { worker, rank: *rank };
            let at = match paths.iter().position(|(base, _)| *base == cache.base) {
                Some(at) => at,
                None => {
                    let path = self.follow(question, cache.base, |path| Stretches::of(&self.forest, path));
                    paths.push((cache.base, path));
                    paths.len() - 1
                }
            };
            let found = self.hybrid_match(holder, cache, &paths[at].1);
            tell(RankMatch { holder, found });
        }
    }

    fn hybrid_match(&self, holder: Holder, cache: &Cache, path: &Stretches) -> WorkerMatch {
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

    /// Follows what is asked for in blocks of a size. Hashes that others computed have one size only, names any.
    fn follow<R: Default>(
        &self,
        question: &mut Question<'_, '_>,
        block_size: u32,
        along: impl FnOnce(&mut dyn Path) -> R,
    ) -> R {
        match question {
            Question::Prompt(prompt) => along(&mut PromptPath { prompt, block_size }),
            Question::Sequence {
                hashes,
                block_size: size,
            } if *size == block_size => along(&mut SequencePath(hashes)),
            Question::Sequence { .. } => R::default(),
            Question::Names { names, namers } => along(&mut NamedPath {
                names,
                naming: self.naming(namers),
                behind: None,
            }),
        }
    }
}

impl WorkerMatch {
    /// Takes over a better rank's match.
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

    /// What is expected on the device is as good as there.
    fn count_expected(&mut self) {
        self.device_tokens = self.device_tokens.max(self.expected_tokens);
        self.host_tokens = self.host_tokens.max(self.device_tokens);
        self.any_tokens = self.any_tokens.max(self.host_tokens);
    }
}
