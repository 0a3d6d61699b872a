//! Caches copied from one index into another, while engines go on.

mod naive;

use kv_index::{
    CacheSnapshot, Holder, IndexLimits, SharedPrefixIndex, SnapshotChain, SnapshotGroup, SnapshotHold,
};
use naive::engines::{Act, Engines, queried};
use naive::model::Model;
use naive::oracle::{never_more, rank_depths};
use naive::script::{Mix, Script, script};
use proptest::prelude::*;
use routing::{Attention, BlockEvent, DpRank, EngineBlockHash, RemovedBlocks, Tier, WorkerId};

const ROOM: usize = 1 << 20;

fn mix() -> Mix {
    Mix {
        workers: 3,
        ranks: 2,
        steps: 2..60,
        prompts: 6,
        letters: 12,
        alphabet: 2,
        hybrid: false,
        tiers: true,
        odd: false,
        agreed: 10,
    }
}

fn long() -> Mix {
    Mix {
        prompts: 8,
        letters: 300,
        alphabet: 100,
        agreed: 40,
        ..mix()
    }
}

fn new_index(room: usize) -> SharedPrefixIndex {
    SharedPrefixIndex::new(IndexLimits { max_blocks: room })
}

fn apply(index: &SharedPrefixIndex, act: &Act) {
    match act {
        Act::RemoveWorker(worker) => index.remove_worker(*worker),
        Act::Apply(holder, event) => index.apply(*holder, event),
    };
}

/// Returns whether an event is of a worker whose caches are copied; the others' events reach both indexes.
fn is_copied(act: &Act) -> bool {
    let worker = match act {
        Act::RemoveWorker(worker) => *worker,
        Act::Apply(holder, _) => holder.worker,
    };
    worker.0 < 2
}

/// A script during which caches are copied from one index into another.
struct Copying {
    from: SharedPrefixIndex,
    to: SharedPrefixIndex,
    model: Model,
}

impl Copying {
    /// Runs a script, copies after half of it, and calls `check` after each further step.
    fn run(
        script: &Script,
        room: usize,
        mut check: impl FnMut(&Self) -> Result<(), String>,
    ) -> Result<(), TestCaseError> {
        let copying = Self {
            from: new_index(ROOM),
            to: new_index(room),
            model: Model::default(),
        };
        let (mut copying, mut engines) = (copying, Engines::new(script));
        let half = script.steps.len() / 2;
        for (at, step) in script.steps.iter().enumerate() {
            let act = engines.act(step);
            match &act {
                Act::RemoveWorker(worker) => copying.model.remove_worker(*worker),
                Act::Apply(holder, event) => copying.model.apply(*holder, event),
            };
            apply(&copying.from, &act);
            if at > half || !is_copied(&act) {
                apply(&copying.to, &act);
            }
            if at == half {
                copying.copy();
            }
            if at >= half {
                check(&copying).map_err(|unlike| TestCaseError::fail(format!("step {at}: {unlike}")))?;
            }
        }
        Ok(())
    }

    fn copy(&self) {
        for worker in [WorkerId(0), WorkerId(1)] {
            for rank in [DpRank(0), DpRank(1)] {
                let holder = Holder { worker, rank };
                if let Some(snapshot) = self.from.export(holder, usize::MAX) {
                    assert!(snapshot.is_whole);
                    self.to.import(holder, &snapshot);
                }
            }
        }
    }
}

/// Checks that both indexes give the same answers.
fn same_answers(copying: &Copying, script: &Script) -> Result<(), String> {
    let workers: Vec<WorkerId> = (0..script.workers).map(WorkerId).collect();
    for queried in script.prompts.iter().filter_map(queried) {
        let holding = |index| -> Result<Vec<_>, String> {
            let depths = rank_depths(index, &queried, &workers)?;
            Ok(depths.into_iter().filter(|(_, depths)| depths[2] > 0).collect())
        };
        let (from, to) = (holding(&copying.from)?, holding(&copying.to)?);
        if from != to {
            return Err(format!("{queried:?}: {from:?}, the copy says {to:?}"));
        }
    }
    let held = |index: &SharedPrefixIndex| -> Vec<u64> {
        workers.iter().map(|&worker| index.held_blocks(worker)).collect()
    };
    let (from, to) = (held(&copying.from), held(&copying.to));
    (from == to)
        .then_some(())
        .ok_or_else(|| format!("{from:?} blocks, the copy has {to:?}"))
}

/// Checks that the copy has nothing that the engines do not have.
fn nothing_false(copying: &Copying, script: &Script) -> Result<(), String> {
    let workers: Vec<WorkerId> = (0..script.workers).map(WorkerId).collect();
    let mut prompts = script.prompts.iter().filter_map(queried);
    prompts.try_for_each(|queried| never_more(&copying.to, &copying.model, &queried, &workers))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_copied_cache_answers_and_follows_its_engine_as_the_original_does(script in script(&mix())) {
        Copying::run(&script, ROOM, |copying| same_answers(copying, &script))?;
    }

    #[test]
    fn a_copy_of_several_groups_has_nothing_that_the_engine_does_not_have(
        script in script(&Mix { hybrid: true, odd: true, ..mix() }),
    ) {
        Copying::run(&script, ROOM, |copying| nothing_false(copying, &script))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn copies_of_long_chains_answer_as_the_originals_do(script in script(&long())) {
        Copying::run(&script, ROOM, |copying| same_answers(copying, &script))?;
    }

    #[test]
    fn copies_of_several_groups_answer_as_the_originals_do(script in script(&Mix { hybrid: true, ..mix() })) {
        Copying::run(&script, ROOM, |copying| same_answers(copying, &script))?;
    }

    #[test]
    fn a_copy_without_room_has_nothing_that_the_engine_does_not_have(
        script in script(&long()),
        room in 1..600_usize,
    ) {
        Copying::run(&script, room, |copying| nothing_false(copying, &script))?;
    }
}

fn holder() -> Holder {
    Holder {
        worker: WorkerId(1),
        rank: DpRank(0),
    }
}

fn chain(parent: Option<u64>, contents: &[u64]) -> SnapshotChain {
    SnapshotChain {
        parent,
        contents: contents.to_vec(),
        holds: vec![SnapshotHold {
            tier: Tier::Device,
            group: 0,
            start: 0,
            names: contents.to_vec(),
            further: Vec::new(),
        }],
    }
}

fn snapshot(chains: Vec<SnapshotChain>) -> CacheSnapshot {
    CacheSnapshot {
        base: 16,
        groups: vec![SnapshotGroup {
            index: 0,
            attention: Attention::Full,
            block_size: 16,
        }],
        ambiguous: Vec::new(),
        chains,
        is_whole: true,
    }
}

#[test]
fn invalid_parts_of_a_snapshot_are_left_out() {
    let index = new_index(ROOM);
    let mut beyond = chain(None, &[5]);
    beyond.holds[0].start = 1;
    let mut foreign = chain(None, &[6]);
    foreign.holds[0].group = 7;
    let applied = index.import(holder(), &snapshot(vec![beyond, chain(None, &[1, 2]), foreign]));
    assert_eq!((applied.stored, applied.malformed), (2, 2));
    for wrong in [0, 5] {
        let wrong = CacheSnapshot {
            base: wrong,
            ..snapshot(vec![chain(None, &[1])])
        };
        index.import(holder(), &wrong);
        assert_eq!(
            index.held_blocks(holder().worker),
            0,
            "the former contents are void"
        );
    }
}

#[test]
fn an_export_stops_at_its_limit_and_reports_it() {
    let index = new_index(ROOM);
    let contents: Vec<u64> = (1..=200).collect();
    let chains = contents.chunks(64).scan(None, |parent, contents| {
        Some(chain(
            std::mem::replace(parent, contents.last().copied()),
            contents,
        ))
    });
    index.import(holder(), &snapshot(chains.collect()));
    let blocks = |snapshot: &CacheSnapshot| -> usize {
        snapshot.chains.iter().map(|chain| chain.contents.len()).sum()
    };
    let part = index.export(holder(), 100).unwrap();
    assert_eq!((blocks(&part), part.is_whole), (100, false));
    let whole = index.export(holder(), 200).unwrap();
    assert_eq!((blocks(&whole), whole.is_whole), (200, true));
    let nobody = Holder {
        worker: WorkerId(9),
        rank: DpRank(0),
    };
    assert_eq!(index.export(nobody, 9), None);
}

#[test]
fn a_block_after_a_gap_gets_its_place_in_the_copy() {
    let (from, to) = (new_index(ROOM), new_index(ROOM));
    let whole = Holder {
        worker: WorkerId(2),
        rank: DpRank(0),
    };
    from.import(whole, &snapshot(vec![chain(None, &[1, 2, 3])]));
    from.import(
        holder(),
        &snapshot(vec![chain(None, &[1, 2]), chain(Some(2), &[9])]),
    );
    let removed = RemovedBlocks {
        hashes: vec![EngineBlockHash(2)],
        tier: None,
        group: 0,
    };
    from.apply(holder(), &BlockEvent::Removed(removed));
    let copy = from.export(holder(), usize::MAX).unwrap();
    assert_eq!(from.export(holder(), 2).map(|part| part.is_whole), Some(false));

    // Here the block is in the middle of a run.
    to.import(whole, &snapshot(vec![chain(None, &[1, 2, 9, 10])]));
    to.import(holder(), &copy);
    assert_eq!(to.stats().distinct_blocks, 4, "no block is there twice");
    assert_eq!(to.held_blocks(holder().worker), 2);
}
