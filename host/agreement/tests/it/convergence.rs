//! Random runs of three routers over one store: they agree in the end.

use std::collections::BTreeMap;

use agreement::AgreedEntry;
use proptest::prelude::*;
use serde_json::json;

use super::{MemoryStore, Router, key};

/// Router and number of a decision.
type Decision = (String, u64);
/// Decisions by which others were judged.
type Bounds = BTreeMap<Decision, Option<Decision>>;

fn decision(entry: &AgreedEntry) -> Decision {
    (entry.by.clone(), entry.number)
}

/// Writes one proposal. One that was judged by an entry replaces that entry, or nothing, unless it was accepted before.
fn write_within(router: &mut Router, store: &mut MemoryStore, is_lost: bool, bounds: &mut Bounds) -> bool {
    let before = store.entries.clone();
    let has_written = router.write(store, is_lost);
    for (key, written) in &store.entries {
        if before.get(key) != Some(written) {
            let written = decision(&AgreedEntry::decode(&written.1).unwrap());
            let replaced = before
                .get(key)
                .map(|(_, bytes)| decision(&AgreedEntry::decode(bytes).unwrap()));
            let bound = bounds.remove(&written);
            assert!(
                replaced.is_none() || bound.is_none_or(|bound| bound == replaced),
                "{written:?}"
            );
        }
    }
    has_written
}

/// Step of a run.
#[derive(Debug, Clone)]
enum Step {
    /// Proposes at a time.
    Propose(usize, usize, i64, u64),
    /// Looks at the revision of a key.
    Judge(usize, usize),
    /// Proposes over the revision of the last look.
    ProposeJudged(usize, i64, u64),
    Write(usize, bool),
    Follow(usize),
    Cut(usize),
    Connect(usize),
    Remove(usize),
    Forget,
    /// Copies the store.
    Copy,
    /// Puts the last copy in the store's place.
    PutBack,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, 0..3_usize, 0..5_i64, 0..20_u64)
            .prop_map(|(router, key, value, at_ms)| Step::Propose(router, key, value, at_ms)),
        4 => (0..3_usize, 0..3_usize).prop_map(|(router, key)| Step::Judge(router, key)),
        4 => (0..3_usize, 5..9_i64, 0..20_u64)
            .prop_map(|(router, value, at_ms)| Step::ProposeJudged(router, value, at_ms)),
        6 => (0..3_usize, any::<bool>()).prop_map(|(router, is_lost)| Step::Write(router, is_lost)),
        6 => (0..3_usize).prop_map(Step::Follow),
        2 => (0..3_usize).prop_map(Step::Cut),
        2 => (0..3_usize).prop_map(Step::Connect),
        1 => (0..3_usize).prop_map(Step::Remove),
        1 => Just(Step::Forget),
        1 => Just(Step::Copy),
        1 => Just(Step::PutBack),
    ]
}

proptest! {
    #[test]
    fn all_routers_converge_to_equal_entries_after_any_loss(steps in prop::collection::vec(step(), 0..80)) {
        let (mut store, mut copy) = (MemoryStore::default(), MemoryStore::default());
        let mut routers = ["1", "2", "3"].map(Router::new);
        let mut connected = [false; 3];
        let mut judged = [const { None }; 3];
        let mut bounds = Bounds::new();
        for step in steps {
            match step {
                Step::Propose(router, at, value, at_ms) => {
                    routers[router].view.propose(key(at), json!(value), at_ms);
                }
                Step::Judge(router, at) => {
                    let seen = routers[router].seen(&key(at));
                    judged[router] = Some((at, routers[router].view.judged(&key(at)), seen));
                }
                Step::ProposeJudged(router, value, at_ms) => {
                    let Some((at, contents, seen)) = judged[router].take() else { continue };
                    let view = &mut routers[router].view;
                    if view.propose_over(key(at), json!(value), at_ms, contents) {
                        bounds.insert(decision(view.followed(&key(at)).unwrap()), seen);
                    }
                }
                Step::Write(router, is_lost) if connected[router] => {
                    write_within(&mut routers[router], &mut store, is_lost, &mut bounds);
                }
                Step::Follow(router) if connected[router] => routers[router].follow(&store),
                Step::Cut(router) => { routers[router].view.lost(); connected[router] = false; }
                Step::Connect(router) => { routers[router].connect(&store); connected[router] = true; }
                Step::Remove(at) => store.remove(&key(at)),
                Step::Copy => copy = store.clone(),
                Step::Forget | Step::PutBack => {
                    match step {
                        Step::Forget => store.forget(),
                        _ => store = copy.clone(),
                    }
                    // A restart of the store ends every connection.
                    for (router, connected) in routers.iter_mut().zip(&mut connected) {
                        router.view.lost();
                        *connected = false;
                    }
                }
                Step::Write(..) | Step::Follow(_) => {}
            }
        }
        for router in &mut routers {
            router.view.lost();
            router.connect(&store);
        }
        for _ in 0..20 {
            for router in &mut routers {
                while write_within(router, &mut store, false, &mut bounds) {}
                router.follow(&store);
            }
        }
        for router in &routers {
            prop_assert_eq!(router.view.proposals().count(), 0, "nothing is left to write");
        }
        for at in 0..3 {
            let stored = store.entries.get(&key(at)).map(|(_, bytes)| AgreedEntry::decode(bytes).unwrap());
            for router in &routers {
                prop_assert_eq!(router.view.followed(&key(at)), stored.as_ref());
            }
        }
    }
}
