//! Tests of changes between the parts of a prediction.

use routing::{Attention, BlockEvent, DpRank, EngineBlockHash, RemovedBlocks, StoredBlocks, Tier, WorkerId};

use super::*;
use crate::count::IndexLimits;
use crate::holder::Holder;
use crate::query::IndexQuery;

const HOLDER: Holder = Holder {
    worker: WorkerId(1),
    rank: DpRank(0),
};
const SENT: Sent = Sent {
    worker: HOLDER.worker,
    block_size: 1,
    capacity: 1 << 20,
};

fn core() -> IndexCore {
    IndexCore::new(IndexLimits { max_blocks: 1 << 16 })
}

/// Returns a prompt of so many blocks.
fn prompt(first: u32, blocks: usize) -> Prompt<'static> {
    let tokens: Vec<u32> = std::iter::once(first).chain(1..).take(blocks).collect();
    Prompt::new(tokens, None, None)
}

fn store(core: &mut IndexCore, holder: Holder, tokens: &[u32]) {
    let event = BlockEvent::Stored(StoredBlocks {
        hashes: tokens
            .iter()
            .map(|token| EngineBlockHash((*token).into()))
            .collect(),
        parent: None,
        tokens: tokens.to_vec(),
        block_size: 1,
        tier: Tier::Device,
        lora: None,
        extra_keys: Vec::new(),
        group: 0,
        attention: Attention::Full,
    });
    let mut from = Some(0);
    while let Some(part) = from {
        from = core.apply_part(holder, &event, part).1;
    }
}

/// Returns the blocks of a prompt that the worker is expected to hold.
fn expected(core: &IndexCore, prompt: &mut Prompt<'_>) -> u32 {
    let mut found = Vec::new();
    core.matches(&mut IndexQuery::Prompt(prompt), &[HOLDER.worker], &mut found);
    found[0].expected_tokens
}

/// Predicts a prompt, with a change after its first part.
fn expect_with(core: &mut IndexCore, prompt: &mut Prompt<'_>, change: impl FnOnce(&mut IndexCore)) {
    let mut progress = PredictionProgress::default();
    assert!(core.expect(&SENT, prompt, &mut progress), "it has several parts");
    change(core);
    while core.expect(&SENT, prompt, &mut progress) {}
}

#[test]
fn a_block_that_is_removed_between_two_parts_is_not_predicted_again() {
    let mut core = core();
    store(&mut core, HOLDER, &[1]);
    let mut long = prompt(1, 3 * PART);
    expect_with(&mut core, &mut long, |core| {
        let removed = BlockEvent::Removed(RemovedBlocks {
            hashes: vec![EngineBlockHash(1)],
            tier: Some(Tier::Device),
            group: 0,
        });
        core.apply_part(HOLDER, &removed, 0);
    });
    assert_eq!(core.stats().expected, 3 * PART - 1);
    assert_eq!(expected(&core, &mut long), 0);
}

#[test]
fn a_prediction_that_is_dropped_between_two_parts_begins_again() {
    for times in [1, 2] {
        let mut core = core();
        let mut long = prompt(1, 3 * PART);
        expect_with(&mut core, &mut long, |core| core.forget_expected(HOLDER.worker));
        assert_eq!(expected(&core, &mut long), 3 * PART as u32);
        expect_with(&mut core, &mut long, |core| {
            (0..times).for_each(|_| core.age_expected(HOLDER.worker));
        });
        assert_eq!(expected(&core, &mut long), 3 * PART as u32, "aged {times} times");
    }
}

#[test]
fn a_part_does_not_continue_in_a_run_that_has_other_blocks_now() {
    let mut core = IndexCore::new(IndexLimits { max_blocks: 2 * PART });
    let mut long = prompt(7, PART + 10);
    expect_with(&mut core, &mut long, |core| {
        let other = Holder {
            worker: WorkerId(2),
            ..HOLDER
        };
        let tokens: Vec<u32> = (1_000..).take(2 * PART).collect();
        store(core, other, &tokens);
        assert!(core.stats().evicted > 0);
    });
    assert_eq!(expected(&core, &mut long), PART as u32 + 10);
}

#[test]
fn predictions_whose_parts_alternate_are_both_whole() {
    let mut core = core();
    let mut prompts = [prompt(1, 300), prompt(2, 500)];
    let mut progress = [PredictionProgress::default(); 2];
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for (prompt, progress) in prompts.iter_mut().zip(&mut progress) {
            goes_on |= core.expect(&SENT, prompt, progress);
        }
    }
    assert_eq!(
        prompts.each_mut().map(|prompt| expected(&core, prompt)),
        [300, 500]
    );
    assert_eq!(core.stats().expected, 800);
}

#[test]
fn a_prediction_in_several_parts_over_several_runs_is_taken_back_whole() {
    let mut core = core();
    let (mut short, mut long) = (prompt(7, 100), prompt(7, 3 * PART + 5));
    expect_with(&mut core, &mut short, |_| {});
    // Another worker's prompt goes further, and one branches off, so that the long one goes on in other runs.
    let other = Sent {
        worker: WorkerId(2),
        ..SENT
    };
    let (mut further, mut progress) = (prompt(7, 150), PredictionProgress::default());
    while core.expect(&other, &mut further, &mut progress) {}
    let mut branch: Vec<u32> = std::iter::once(7).chain(1..).take(150).collect();
    branch.extend([1_000_000, 1_000_001]);
    expect_with(&mut core, &mut Prompt::new(branch, None, None), |_| {});
    let mut progress = PredictionProgress::default();
    while core.expect(&SENT, &mut long, &mut progress) {}
    let mut prediction = progress.prediction(SENT.worker).unwrap();
    assert_eq!(expected(&core, &mut long), 3 * PART as u32 + 5);
    while core.retract(&mut prediction, &mut long) {}
    assert_eq!(
        expected(&core, &mut long),
        150,
        "the branch predicted these before"
    );
}
