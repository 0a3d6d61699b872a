//! Tests of policy memory over runs of the router.

use std::fs;
use std::path::Path;

use routing::WorkerId;

use super::*;

const MINUTE: u32 = 60_000;

/// A fleet with ids from 10 on.
pub(super) struct Fleet {
    names: WorkerNames,
    now_us: u64,
}

impl Fleet {
    pub(super) fn new(names: &[&str], now_us: u64) -> Self {
        let names = names.iter().map(|&name| name.into());
        let names = (10..).map(WorkerId).zip(names).collect();
        Self { names, now_us }
    }
}

impl FleetView for Fleet {
    fn worker_names(&self) -> WorkerNames {
        self.names.clone()
    }

    fn now_us(&self) -> u64 {
        self.now_us
    }
}

/// A fleet that must not be looked at.
struct UnusedFleet;

impl FleetView for UnusedFleet {
    fn worker_names(&self) -> WorkerNames {
        unreachable!("nothing has changed, and nothing waits")
    }

    fn now_us(&self) -> u64 {
        unreachable!("nothing has changed, and nothing waits")
    }
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Starts another run of the router.
fn begin(folder: &Path) -> PolicyMemory {
    PolicyMemory::new(Some(folder.to_owned()))
}

#[test]
fn a_state_and_sessions_outlive_the_process_and_workers_get_their_new_ids() {
    let folder = tempfile::tempdir().unwrap();
    let first = begin(folder.path());
    let state = first.of("mine");
    state.add("turns", 3).unwrap();
    state.sessions().remember(1, WorkerId(10), MINUTE, 0);
    state.sessions().remember(2, WorkerId(11), MINUTE, 0);
    state.sessions().remember(3, WorkerId(11), 1, 0);
    first.write_changed(&Fleet::new(&["a", "b"], 5_000));

    let second = begin(folder.path());
    let state = second.of("mine");
    assert_eq!(state.add("turns", 0), Ok(3));
    assert_eq!(state.sessions().count(), 0, "the workers are not known yet");
    second.settle(&Fleet::new(&["b"], 0));
    assert_eq!(state.sessions().recall(1, 0), None, "its worker is gone");
    assert_eq!(state.sessions().recall(2, 0), Some(WorkerId(10)));
    assert_eq!(state.sessions().recall(3, 0), None, "its time is over");
}

#[test]
fn sessions_of_the_file_give_way_to_newer_ones_and_stay_there_until_they_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let first = begin(folder.path());
    let state = first.of("mine");
    for session in 1..4 {
        state.sessions().remember(session, WorkerId(10), MINUTE, 0);
    }
    first.write_changed(&Fleet::new(&["a", "b"], 0));

    let second = begin(folder.path());
    let state = second.of("mine");
    state.sessions().limit_to(3);
    // The policy decides before the contents of the file are loaded.
    state.sessions().remember(2, WorkerId(11), MINUTE, 0);
    second.write_changed(&UnusedFleet);
    second.settle(&Fleet::new(&["a", "b"], 0));
    state.sessions().remember(4, WorkerId(11), MINUTE, 0);
    let placed = [1, 2, 3, 4].map(|session| state.sessions().recall(session, 0));
    let (a, b) = (Some(WorkerId(10)), Some(WorkerId(11)));
    assert_eq!(placed, [None, b, a, b], "the oldest of the file went first");
}

/// Saves a session of each of the workers `a` and `b`.
fn save_two_sessions(folder: &Path) {
    let first = begin(folder);
    let state = first.of("mine");
    state.sessions().remember(1, WorkerId(10), 60 * MINUTE, 0);
    state.sessions().remember(2, WorkerId(11), 60 * MINUTE, 0);
    first.write_changed(&Fleet::new(&["a", "b"], 0));
}

#[test]
fn sessions_wait_for_a_worker_that_joins_after_the_start() {
    let folder = tempfile::tempdir().unwrap();
    save_two_sessions(folder.path());
    let second = begin(folder.path());
    let state = second.of("mine");
    second.settle(&Fleet::new(&[], 0));
    second.settle(&Fleet::new(&["a"], 1));
    assert_eq!(state.sessions().recall(1, 1), Some(WorkerId(10)));
    assert_eq!(state.sessions().recall(2, 1), None);
    second.settle(&Fleet::new(&["a", "b"], 2));
    assert_eq!(state.sessions().recall(2, 2), Some(WorkerId(11)));
}

#[test]
fn a_write_keeps_the_sessions_that_wait() {
    let folder = tempfile::tempdir().unwrap();
    save_two_sessions(folder.path());
    let second = begin(folder.path());
    let state = second.of("mine");
    second.settle(&Fleet::new(&["c"], 0));
    state.set("k", vec![1]).unwrap();
    // This one is placed again before its worker joins.
    state.sessions().remember(2, WorkerId(10), 60 * MINUTE, 0);
    second.write_changed(&Fleet::new(&["c"], 0));
    assert_eq!(count(&second.written), 1);

    let third = begin(folder.path());
    let state = third.of("mine");
    third.settle(&Fleet::new(&["a", "b", "c"], 0));
    let placed = [1, 2].map(|session| state.sessions().recall(session, 0));
    assert_eq!(placed, [Some(WorkerId(10)), Some(WorkerId(12))]);
}

#[test]
fn sessions_wait_for_some_minutes_and_up_to_the_limit_of_the_policy() {
    let minutes = |count: u64| count * 60 * 1_000_000;
    let folder = tempfile::tempdir().unwrap();
    save_two_sessions(folder.path());
    let second = begin(folder.path());
    let state = second.of("mine");
    second.settle(&Fleet::new(&[], 0));
    second.write_changed(&Fleet::new(&[], minutes(11)));
    second.settle(&Fleet::new(&["a", "b"], minutes(11)));
    assert_eq!(state.sessions().count(), 0, "they waited too long");

    let third = begin(folder.path());
    let state = third.of("mine");
    state.sessions().limit_to(1);
    third.settle(&Fleet::new(&[], 0));
    third.settle(&Fleet::new(&["a", "b"], minutes(1)));
    let placed = [1, 2].map(|session| state.sessions().recall(session, minutes(1)));
    assert_eq!(placed, [None, Some(WorkerId(11))], "the one that was used last");
}

#[test]
fn sessions_of_a_policy_that_is_not_taken_stay_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let first = begin(folder.path());
    first.of("mine").sessions().remember(1, WorkerId(10), MINUTE, 0);
    first.write_changed(&Fleet::new(&["a"], 0));

    let second = begin(folder.path());
    second.of("mine");
    second.retain(|_| false);
    second.settle(&UnusedFleet);
    let state = second.of("mine");
    second.retain(|_| true);
    second.settle(&Fleet::new(&["a"], 0));
    assert_eq!(state.sessions().recall(1, 0), Some(WorkerId(10)));
}

#[test]
fn only_what_changed_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let memory = begin(folder.path());
    let (state, _other) = (memory.of("mine"), memory.of("other"));
    memory.write_changed(&UnusedFleet);
    memory.settle(&UnusedFleet);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    state.set("k", vec![1]).unwrap();
    memory.write_changed(&Fleet::new(&[], 0));
    memory.write_changed(&Fleet::new(&[], 0));
    assert_eq!(count(&memory.written), 1);
    state.delete("k");
    memory.write_changed(&Fleet::new(&[], 0));
    assert_eq!(count(&memory.written), 2);
}

#[test]
fn a_damaged_file_is_put_aside_counted_and_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.state");
    fs::write(&path, "nonsense").unwrap();
    let memory = begin(folder.path());
    let state = memory.of("mine");
    assert_eq!((state.keys(), count(&memory.damaged)), (0, 1));
    state.set("k", vec![1]).unwrap();
    memory.write_changed(&Fleet::new(&[], 0));
    assert_eq!(
        fs::read_to_string(folder.path().join("mine.state.damaged")).unwrap(),
        "nonsense"
    );
    assert_eq!(
        begin(folder.path()).of("mine").keys(),
        1,
        "a new file took its place"
    );
}

#[test]
fn an_unreadable_state_file_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("mine.state")).unwrap();
    let memory = begin(folder.path());
    memory.of("mine").set("k", vec![1]).unwrap();
    memory.write_changed(&Fleet::new(&[], 0));
    assert!(folder.path().join("mine.state").is_dir());
    assert_eq!((count(&memory.failures), count(&memory.written)), (1, 0));
}

#[test]
fn a_folder_that_cannot_be_written_is_counted_and_tried_again() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("state");
    fs::write(&folder, "no folder").unwrap();
    let memory = begin(&folder);
    // Reading below a file fails as well: then nothing would be written at all.
    memory
        .kept()
        .insert("mine".to_owned(), RememberedPolicy::default());
    memory.of("mine").set("k", vec![1]).unwrap();
    memory.write_changed(&Fleet::new(&[], 0));
    memory.write_changed(&Fleet::new(&[], 0));
    assert_eq!((count(&memory.failures), count(&memory.written)), (2, 0));
    fs::remove_file(&folder).unwrap();
    memory.write_changed(&Fleet::new(&[], 0));
    assert_eq!(count(&memory.written), 1);
}

#[test]
fn a_policy_that_is_left_is_written_and_its_file_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let memory = begin(folder.path());
    memory.of("mine").set("k", vec![1]).unwrap();
    memory.retain(|_| false);
    memory.write_changed(&Fleet::new(&[], 0));
    assert!(memory.kept().is_empty());
    assert_eq!(memory.of("mine").get("k"), Some(vec![1]));
    // Named again before it was written, it is the same one.
    memory.of("mine").set("k", vec![2]).unwrap();
    memory.retain(|_| false);
    assert_eq!(memory.of("mine").get("k"), Some(vec![2]));
    memory.write_changed(&Fleet::new(&[], 0));
    assert_eq!(memory.kept().len(), 1);
}

#[test]
fn without_a_folder_a_policy_that_is_left_is_forgotten() {
    let memory = PolicyMemory::default();
    memory.of("mine").set("k", vec![1]).unwrap();
    memory.retain(|_| false);
    assert_eq!(memory.of("mine").keys(), 0);
}
