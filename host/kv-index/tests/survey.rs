//! Survey of popular prefixes, and holdings by tier.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod chains;

use chains::{holder, index, stored, stored_on, tokens};
use kv_index::{Prompt, Sent, SharedPrefix, SurveyLimits, WorkerHoldings};
use routing::{Tier, WorkerId};

const LIMITS: SurveyLimits = SurveyLimits {
    prefixes: 10,
    runs: 1_000,
    blocks: 1_000,
};

fn hash(prompt: &str) -> u64 {
    *Prompt::new(tokens(prompt), None, None)
        .hashes(chains::BLOCK, usize::MAX)
        .last()
        .unwrap()
}

/// Returns the prefix as the survey should show it.
fn prefix(prompt: &str, continuations: u32, workers: &[u32]) -> SharedPrefix {
    SharedPrefix {
        hash: hash(prompt),
        blocks: prompt.len() as u32,
        tokens: prompt.len() as u32 * chains::BLOCK,
        continuations,
        workers: workers.iter().map(|&worker| WorkerId(worker)).collect(),
    }
}

#[test]
fn prefixes_with_the_most_continuations_come_first_with_their_holders() {
    let index = index();
    for (worker, prompt) in [(0, "SSab"), (0, "SScd"), (1, "SSef"), (1, "SSeg"), (2, "x")] {
        index.apply(holder(worker, 0), &stored(prompt, 0));
    }
    let survey = index.survey(LIMITS);
    assert!(survey.is_complete);
    assert_eq!(
        survey.prefixes[..2],
        [prefix("SS", 3, &[0, 1]), prefix("SSe", 2, &[1])]
    );
    let ends: Vec<_> = survey.prefixes[2..].iter().map(|end| end.continuations).collect();
    assert_eq!(ends, [0; 5], "the ends of chains: SSab, SScd, SSef, SSeg, x");
    assert_eq!(survey.prefixes.last(), Some(&prefix("x", 0, &[2])));
}

#[test]
fn a_survey_keeps_to_its_limits_and_reports_that_it_did() {
    let index = index();
    for letter in b'a'..=b'z' {
        let prompt = format!("S{}", char::from(letter).to_string().repeat(9));
        index.apply(holder(0, 0), &stored(&prompt, 0));
    }
    let few = SurveyLimits {
        prefixes: 1,
        ..LIMITS
    };
    assert_eq!(index.survey(few).prefixes, [prefix("S", 26, &[0])]);
    let none = SurveyLimits {
        prefixes: 0,
        ..LIMITS
    };
    assert!(index.survey(none).prefixes.is_empty());
    for limits in [
        SurveyLimits { runs: 5, ..LIMITS },
        SurveyLimits { blocks: 1, ..LIMITS },
    ] {
        assert!(!index.survey(limits).is_complete);
    }
}

#[test]
fn blocks_that_nobody_holds_are_in_no_survey() {
    let index = index();
    index.apply(holder(0, 0), &stored("abc", 0));
    index.clear(holder(0, 0));
    let survey = index.survey(LIMITS);
    assert!(survey.prefixes.iter().all(|prefix| prefix.workers.is_empty()));
    while index.gc_step() {}
    assert!(index.survey(LIMITS).prefixes.is_empty());
}

#[test]
fn holdings_are_counted_by_tier_and_predictions_apart() {
    let index = index();
    let worker = WorkerId(3);
    assert_eq!(index.holdings(worker), WorkerHoldings::default());
    index.apply(holder(3, 0), &stored("abcd", 0));
    index.apply(holder(3, 1), &stored("ab", 0));
    index.apply(holder(3, 0), &stored_on("ab", Tier::Host));
    index.apply(holder(3, 0), &stored_on("a", Tier::Disk));
    let sent = Sent {
        worker,
        block_size: chains::BLOCK,
        capacity: 100,
    };
    index.expect(&sent, &mut Prompt::new(tokens("abcdef"), None, None));
    let expected = WorkerHoldings {
        device: 6,
        host: 2,
        disk: 1,
        shared: 0,
        expected: 6,
    };
    assert_eq!(index.holdings(worker), expected);
}
