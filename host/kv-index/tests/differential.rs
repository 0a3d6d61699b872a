//! The index against the reference model: the same effect of every event, the same answer to every question.
//! At length: `cargo run --release -p kv-index --example soak`.

mod naive;

use kv_index::{IndexLimits, SharedPrefixIndex};
use naive::run::{Claim, run};
use naive::script::{Mix, Script, script};
use proptest::prelude::*;

const ROOM: usize = 1 << 20;

/// Returns a mix of prompts so short and alike that all of them interfere.
fn tiny() -> Mix {
    Mix {
        workers: 2,
        ranks: 2,
        steps: 1..60,
        prompts: 6,
        letters: 8,
        alphabet: 2,
        hybrid: false,
        tiers: true,
        odd: true,
        agreed: 10,
    }
}

/// Returns a mix of long chains that branch anywhere, with many holders of the same ones.
fn long() -> Mix {
    Mix {
        workers: 5,
        ranks: 2,
        steps: 1..50,
        prompts: 8,
        letters: 300,
        alphabet: 100,
        agreed: 40,
        ..tiny()
    }
}

fn check(script: &Script, claim: Claim, room: usize) -> Result<(), TestCaseError> {
    let index = SharedPrefixIndex::new(IndexLimits { max_blocks: room });
    run(&index, script, claim, 8)
        .map(drop)
        .map_err(TestCaseError::fail)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_model_after_any_events(script in script(&tiny())) {
        check(&script, Claim::Equal, ROOM)?;
    }

    #[test]
    fn equals_the_model_for_engines_of_several_groups(script in script(&Mix { hybrid: true, ..tiny() })) {
        check(&script, Claim::Equal, ROOM)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_model_for_long_chains(script in script(&long())) {
        check(&script, Claim::Equal, ROOM)?;
    }

    #[test]
    fn never_claims_more_than_the_model_where_room_is_short(
        script in script(&Mix { odd: false, ..long() }),
        room in 1..600_usize,
    ) {
        check(&script, Claim::NeverMore, room)?;
    }
}
