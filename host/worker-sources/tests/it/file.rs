//! Watched files.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use worker_sources::{SourceKind, SourceSpec};

use super::{DEADLINE, PAUSE, fails, finds, names, report, running, spec};

fn save(path: &Path, targets: &[&str]) {
    let fresh = path.with_extension("saving");
    let targets: Vec<String> = targets.iter().map(|target| format!("\"{target}\"")).collect();
    fs::write(&fresh, format!("[{{\"targets\": [{}]}}]", targets.join(", "))).unwrap();
    fs::rename(fresh, path).unwrap();
}

#[test]
fn a_renamed_file_is_noticed_without_polling() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("targets.json");
    save(&path, &["a:1"]);
    // Far longer than the test waits.
    let every = Duration::from_secs(3_600);
    let source = SourceSpec {
        every,
        ..spec(SourceKind::FileSd(path.clone()))
    };
    let sources = running(vec![source]);
    finds(&sources, &["a:1"]);
    for number in 2..5 {
        let added = format!("a:{number}");
        let targets = ["a:1", &added];
        save(&path, &targets);
        // The one before is less than half, or stays for want of a repeated answer.
        super::eventually("the new one is there", || names(&sources).contains(&added));
    }
}

#[test]
fn a_file_behind_a_link_that_moved_is_watched_at_its_new_place() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for version in ["v1", "v2"] {
        fs::create_dir(at(version)).unwrap();
    }
    std::os::unix::fs::symlink("v1", at("current")).unwrap();
    let path = at("current").join("targets.json");
    save(&path, &["a:1"]);
    save(&at("v2").join("targets.json"), &["a:1", "b:1"]);
    // Far longer than the test waits.
    let every = Duration::from_secs(3_600);
    let source = SourceSpec {
        every,
        ..spec(SourceKind::FileSd(path))
    };
    let sources = running(vec![source]);
    finds(&sources, &["a:1"]);
    std::os::unix::fs::symlink("v2", at("next")).unwrap();
    fs::rename(at("next"), at("current")).unwrap();
    finds(&sources, &["a:1", "b:1"]);
    save(&at("v2").join("targets.json"), &["a:1", "b:1", "c:1"]);
    finds(&sources, &["a:1", "b:1", "c:1"]);
}

#[test]
fn a_file_that_is_gone_or_half_written_keeps_the_workers_and_edits_are_polled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("targets.json");
    let sources = running(vec![spec(SourceKind::FileSd(path.clone()))]);
    fails(&sources, "targets.json");
    save(&path, &["a:1", "b:1", "c:1"]);
    finds(&sources, &["a:1", "b:1", "c:1"]);
    fs::write(&path, "[{\"targets\": [\"a:1\"").unwrap();
    fails(&sources, "not a list of target groups");
    fs::remove_file(&path).unwrap();
    fails(&sources, "failed to read");
    assert_eq!(report(&sources).workers, 3);
    save(&path, &["a:1", "b:1"]);
    finds(&sources, &["a:1", "b:1"]);
    save(&path, &[]);
    finds(&sources, &[]);
}

#[test]
fn a_busy_folder_does_not_put_off_the_polls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("targets.json");
    save(&path, &["a:1", "b:1"]);
    let source = SourceSpec {
        every: Duration::from_millis(300),
        ..spec(SourceKind::FileSd(path.clone()))
    };
    let sources = running(vec![source]);
    finds(&sources, &["a:1", "b:1"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fs::write(folder.path().join("other"), "").unwrap();
                fs::remove_file(folder.path().join("other")).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        save(&path, &["a:1"]);
        let started = Instant::now();
        while names(&sources) != ["a:1"] && started.elapsed() < DEADLINE {
            std::thread::sleep(PAUSE);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(names(&sources) == ["a:1"], "the one that is gone is confirmed");
}
