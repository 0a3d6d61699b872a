//! Compiled code is taken from disk where it is whole, and from nobody else.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::components::{component, decide, engine, load, route};
use policy_runtime::{CodeCache, CodeCacheError, PolicyEngine};

const LEAST: &str = include_str!("../wat/least.wat");
const BEHAVIOURS: &str = include_str!("../wat/behaviours.wat");

fn caching(path: &Path) -> PolicyEngine {
    engine().with_cache(CodeCache::open(path).unwrap())
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Which row a policy of these bytes chooses of two, the second of which has less: `least` the second, `behaviours` the first.
fn chosen(engine: &PolicyEngine, case: &str) -> u32 {
    let policy = load(engine, &component(case)).unwrap();
    route(decide(&policy, 1, &[1.0, 0.0])).0
}

#[test]
fn what_was_compiled_once_is_taken_from_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("code");
    assert_eq!(chosen(&caching(&path), LEAST), 1);
    let of_least = files(&path).remove(0);
    assert_eq!((mode(&path), mode(&of_least)), (0o700, 0o600));
    assert_eq!(chosen(&caching(&path), LEAST), 1);
    assert_eq!(files(&path), std::slice::from_ref(&of_least));

    // Proof that it is read: another policy's code under its name.
    assert_eq!(chosen(&caching(&path), BEHAVIOURS), 0);
    let of_behaviours = files(&path).into_iter().find(|file| *file != of_least).unwrap();
    fs::copy(of_behaviours, &of_least).unwrap();
    assert_eq!(chosen(&caching(&path), LEAST), 0);
}

#[test]
fn a_damaged_file_is_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("code");
    chosen(&caching(&path), LEAST);
    let file = files(&path).remove(0);
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() / 2], &whole[..7], b""] {
        fs::write(&file, damaged).unwrap();
        assert_eq!(chosen(&caching(&path), LEAST), 1);
        assert!(fs::read(&file).unwrap() == whole, "it was mended");
    }
}

#[test]
fn a_folder_that_others_may_enter_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("code");
    fs::create_dir(&path).unwrap();
    for open in [0o755, 0o770, 0o701] {
        fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
        let refused = CodeCache::open(&path).unwrap_err();
        assert!(matches!(refused, CodeCacheError::NotOurs { .. }), "{refused}");
        assert!(refused.to_string().contains(&format!("{open:o}")), "{refused}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    CodeCache::open(&path).unwrap();
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    CodeCache::open(&link).unwrap_err();
    CodeCache::open(&folder.path().join("no/such/folder")).unwrap_err();
}

#[test]
fn a_folder_that_is_opened_to_others_later_is_neither_read_nor_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("code");
    let engine = caching(&path);
    chosen(&engine, BEHAVIOURS);
    let of_behaviours = files(&path).remove(0);
    chosen(&engine, LEAST);
    let of_least = files(&path)
        .into_iter()
        .find(|file| *file != of_behaviours)
        .unwrap();
    fs::rename(of_behaviours, &of_least).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    assert_eq!(chosen(&engine, LEAST), 1, "compiled");
    assert_eq!(chosen(&engine, BEHAVIOURS), 0);
    assert_eq!(files(&path), [of_least]);
}

#[test]
fn old_files_make_room_for_new_ones_and_files_of_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("code");
    let engine = caching(&path);
    for number in 0..40 {
        let (ours, other) = (
            format!("{number:064x}-{number:016x}.code"),
            format!("{number}.code"),
        );
        fs::write(path.join(ours), "old").unwrap();
        fs::write(path.join(other), "a stranger's").unwrap();
    }
    chosen(&engine, LEAST);
    assert_eq!(files(&path).len(), 32 + 40);
    assert_eq!(chosen(&engine, LEAST), 1);
}
