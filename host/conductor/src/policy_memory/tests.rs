//! What policies remember, over runs of the router.

use std::fs;
use std::path::Path;

use super::*;

const MINUTE: u32 = 60_000;

fn workers(names: &[&str]) -> WorkerNames {
    let names = names.iter().map(|&name| name.into());
    (10..).map(WorkerId).zip(names).collect()
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Another run of the router.
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
    first.write_changed(|| workers(&["a", "b"]), 5_000);

    let second = begin(folder.path());
    let state = second.of("mine");
    assert_eq!(state.add("turns", 0), Ok(3));
    assert_eq!(state.sessions().count(), 0, "the workers are not known yet");
    second.settle(|| workers(&["b"]), 0);
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
    first.write_changed(|| workers(&["a", "b"]), 0);

    let second = begin(folder.path());
    let state = second.of("mine");
    state.sessions().limit_to(3);
    // It decides before what the file holds is in place.
    state.sessions().remember(2, WorkerId(11), MINUTE, 0);
    second.write_changed(|| unreachable!("the file has more"), 0);
    second.settle(|| workers(&["a", "b"]), 0);
    state.sessions().remember(4, WorkerId(11), MINUTE, 0);
    let placed = [1, 2, 3, 4].map(|session| state.sessions().recall(session, 0));
    let (a, b) = (Some(WorkerId(10)), Some(WorkerId(11)));
    assert_eq!(placed, [None, b, a, b], "the oldest of the file went first");
}

#[test]
fn sessions_of_a_policy_that_is_not_taken_stay_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let first = begin(folder.path());
    first.of("mine").sessions().remember(1, WorkerId(10), MINUTE, 0);
    first.write_changed(|| workers(&["a"]), 0);

    let second = begin(folder.path());
    second.of("mine");
    second.retain(|_| false);
    second.settle(|| unreachable!("nobody waits"), 0);
    let state = second.of("mine");
    second.retain(|_| true);
    second.settle(|| workers(&["a"]), 0);
    assert_eq!(state.sessions().recall(1, 0), Some(WorkerId(10)));
}

#[test]
fn only_what_changed_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let memory = begin(folder.path());
    let (state, _other) = (memory.of("mine"), memory.of("other"));
    memory.write_changed(|| unreachable!("nothing has changed"), 0);
    memory.settle(|| unreachable!("nothing waits"), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    state.set("k", vec![1]).unwrap();
    memory.write_changed(|| workers(&[]), 0);
    memory.write_changed(|| workers(&[]), 0);
    assert_eq!(count(&memory.written), 1);
    state.delete("k");
    memory.write_changed(|| workers(&[]), 0);
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
    memory.write_changed(|| workers(&[]), 0);
    assert_eq!(
        fs::read_to_string(folder.path().join("mine.state.damaged")).unwrap(),
        "nonsense"
    );
    assert!(fs::read(&path).unwrap().starts_with(b"conductor policy state"));
}

#[test]
fn what_the_system_refuses_to_read_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("mine.state")).unwrap();
    let memory = begin(folder.path());
    memory.of("mine").set("k", vec![1]).unwrap();
    memory.write_changed(|| workers(&[]), 0);
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
    memory.kept().insert("mine".to_owned(), Kept::default());
    memory.of("mine").set("k", vec![1]).unwrap();
    memory.write_changed(|| workers(&[]), 0);
    memory.write_changed(|| workers(&[]), 0);
    assert_eq!((count(&memory.failures), count(&memory.written)), (2, 0));
    fs::remove_file(&folder).unwrap();
    memory.write_changed(|| workers(&[]), 0);
    assert_eq!(count(&memory.written), 1);
}

#[test]
fn a_policy_that_is_left_is_written_and_its_file_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let memory = begin(folder.path());
    memory.of("mine").set("k", vec![1]).unwrap();
    memory.retain(|_| false);
    memory.write_changed(|| workers(&[]), 0);
    assert!(memory.kept().is_empty());
    assert_eq!(memory.of("mine").get("k"), Some(vec![1]));
    // Named again before it was written, it is the same one.
    memory.of("mine").set("k", vec![2]).unwrap();
    memory.retain(|_| false);
    assert_eq!(memory.of("mine").get("k"), Some(vec![2]));
    memory.write_changed(|| workers(&[]), 0);
    assert_eq!(memory.kept().len(), 1);
}

#[test]
fn without_a_folder_a_policy_that_is_left_is_forgotten() {
    let memory = PolicyMemory::default();
    memory.of("mine").set("k", vec![1]).unwrap();
    memory.retain(|_| false);
    assert_eq!(memory.of("mine").keys(), 0);
}
