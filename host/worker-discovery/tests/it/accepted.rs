//! Properties of the accepted workers.

use std::collections::BTreeSet;

use proptest::prelude::*;
use worker_discovery::{AcceptedWorkers, DiscoveredWorker};

use crate::workers;

fn urls(workers: &[DiscoveredWorker]) -> BTreeSet<String> {
    workers.iter().map(|worker| worker.url.clone()).collect()
}

proptest! {
    #[test]
    fn a_listed_worker_is_believed_and_one_goes_only_among_few_or_after_repeated_answers(
        confirm in 1_u32..5,
        answers in prop::collection::vec(prop::collection::vec(0_u8..12, 0..12), 1..40),
    ) {
        let mut accepted = AcceptedWorkers::new(confirm);
        let mut history: Vec<BTreeSet<String>> = Vec::new();
        let mut before = BTreeSet::new();
        for numbers in answers {
            let answer = workers(numbers);
            let listed = urls(&answer);
            history.push(listed.clone());
            accepted.record(answer);
            let after = urls(accepted.workers().unwrap());
            prop_assert!(listed.is_subset(&after));
            let missing = before.difference(&listed).count();
            for gone in before.difference(&after) {
                let among_few = missing * 2 < before.len();
                let times = history.iter().rev().take_while(|listed| !listed.contains(gone)).count();
                prop_assert!(among_few || times >= confirm as usize, "{gone} after {times}");
            }
            before = after;
        }
    }

    #[test]
    fn an_answer_that_is_repeated_often_enough_is_believed_in_full(
        confirm in 1_u32..6,
        earlier in prop::collection::vec(prop::collection::vec(0_u8..12, 0..12), 0..10),
        last in prop::collection::vec(0_u8..12, 0..12),
    ) {
        let mut accepted = AcceptedWorkers::new(confirm);
        for numbers in earlier {
            accepted.record(workers(numbers));
        }
        let last = workers(last);
        for _ in 0..confirm {
            accepted.record(last.clone());
        }
        prop_assert_eq!(accepted.workers().unwrap(), &*last);
        prop_assert_eq!(accepted.unconfirmed(), 0);
    }
}
