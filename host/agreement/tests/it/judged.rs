//! Decisions that may replace only the entry by which they were judged.

use serde_json::json;

use super::{MemoryStore, Router, decided, key};

/// Proposes over what the store has.
fn propose_judged(router: &mut Router, value: i64) -> bool {
    let judged = router.view.judged(&key(0));
    router.view.propose_over(key(0), json!(value), 0, judged)
}

#[test]
fn a_decision_judged_by_an_older_revision_than_that_of_its_proposal_gives_way() {
    let (mut store, mut one, mut two) = decided();
    let judged = one.view.judged(&key(0));
    // The other one decides, and this router has its entry before its own decision is taken in.
    assert!(two.view.propose_over(key(0), json!(2), 0, judged.clone()));
    two.write(&mut store, false);
    one.follow(&store);
    assert!(!one.view.propose_over(key(0), json!(3), 0, judged.clone()));
    assert!(!one.write(&mut store, false));
    assert_eq!((one.value(&key(0)), one.view.counts().superseded), (Some(2), 1));
    // Judged again, by the new entry.
    assert!(propose_judged(&mut one, 3));
    one.write(&mut store, false);
    two.follow(&store);
    assert_eq!((one.value(&key(0)), two.value(&key(0))), (Some(3), Some(3)));
}

#[test]
fn a_decision_that_takes_back_an_own_one_gives_way_to_it_if_the_store_had_accepted_it() {
    let mut store = MemoryStore::default();
    let mut one = Router::new("1");
    one.connect(&store);
    for (is_accepted, value) in [(true, 2), (false, 3)] {
        one.view.propose(key(0), json!(1), 0);
        one.write(&mut store, false);
        let judged = one.view.judged(&key(0));
        assert!(one.view.propose_over(key(0), json!(2), 0, judged.clone()));
        let before = store.accepted;
        if is_accepted {
            one.write(&mut store, true);
        }
        assert!(one.view.propose_over(key(0), json!(3), 0, judged.clone()));
        one.write(&mut store, false);
        one.follow(&store);
        assert_eq!(
            (one.value(&key(0)), one.view.proposals().count()),
            (Some(value), 0)
        );
        assert_eq!(store.accepted, before + 1, "one of the two");
    }
}

#[test]
fn a_decision_judged_by_an_entry_gives_way_to_its_removal_and_stays_where_it_is_restored() {
    let mut store = MemoryStore::default();
    let (mut one, mut two) = (Router::new("1"), Router::new("2"));
    one.connect(&store);
    one.view.propose(key(0), json!(1), 0);
    one.write(&mut store, false);
    two.connect(&store);
    assert!(propose_judged(&mut one, 2));
    store.forget();
    two.connect(&store);
    two.write(&mut store, false);
    one.view.lost();
    one.connect(&store);
    one.write(&mut store, false);
    two.follow(&store);
    assert_eq!((one.value(&key(0)), two.value(&key(0))), (Some(2), Some(2)));

    for is_connected in [true, false] {
        assert!(propose_judged(&mut one, 3));
        store.remove(&key(0));
        if is_connected {
            one.follow(&store);
        } else {
            one.connect(&store);
        }
        assert_eq!(one.view.proposals().count(), 0);
        // A decision that was judged by the removal replaces it.
        assert!(propose_judged(&mut one, 4));
        one.write(&mut store, false);
        assert_eq!(one.value(&key(0)), Some(4));
    }
}

#[test]
fn a_decision_made_alone_gives_way_to_a_later_one_in_a_store_that_began_anew() {
    let mut store = MemoryStore::default();
    let (mut one, mut two) = (Router::new("1"), Router::new("2"));
    one.connect(&store);
    for value in 0..3 {
        one.view.propose(key(0), json!(value), 0);
        one.write(&mut store, false);
    }
    two.connect(&store);
    store.forget();
    for router in [&mut one, &mut two] {
        router.view.lost();
    }
    one.view.propose(key(0), json!(7), 0);
    two.view.propose(key(0), json!(8), 0);
    two.connect(&store);
    two.write(&mut store, false);
    one.connect(&store);
    one.write(&mut store, false);
    two.follow(&store);
    assert_eq!((one.value(&key(0)), two.value(&key(0))), (Some(8), Some(8)));
}
