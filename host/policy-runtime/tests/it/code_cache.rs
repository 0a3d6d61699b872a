//! Tests of the code cache: compiled code is loaded from disk only if this user's router wrote it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::components::{component, decide, engine, load, route};
use policy_runtime::{CodeCache, CodeCacheError, CodeCacheStats, PolicyEngine};

const LEAST: &str = include_str!("../wat/least.wat");
const BEHAVIOURS: &str = include_str!("../wat/behaviours.wat");

fn caching(path: &Path) -> PolicyEngine {
    engine().with_cache(CodeCache::open(path).unwrap())
}

/// Files of code.
fn files(path: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|file| !file.ends_with("key")).collect();
    files.sort();
    files
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Returns the row that a policy of these bytes chooses of two, the second of which has less: `least` the second,
/// `behaviours` the first.
fn chosen(engine: &PolicyEngine, case: &str) -> u32 {
    let policy = load(engine, &component(case)).unwrap();
    route(decide(&policy, 1, &[1.0, 0.0])).0
}

fn taken(engine: &PolicyEngine) -> u64 {
    engine.cache_stats().unwrap().taken
}

fn rejected(CodeCacheStats { rejected, .. }: &CodeCacheStats) -> Vec<&'static str> {
    let rejected = rejected.iter().filter(|(_, count)| *count > 0);
    rejected.map(|(reason, _)| *reason).collect()
}

/// A folder with the code of `least` in it.
struct Kept {
    root: TempDir,
    folder: PathBuf,
    code: PathBuf,
}

impl Kept {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("code");
        assert_eq!(chosen(&caching(&folder), LEAST), 1);
        let code = files(&folder).remove(0);
        Self { root, folder, code }
    }

    fn key(&self) -> PathBuf {
        self.folder.join("key")
    }

    /// Checks that a router that starts now compiles again and logs the reason, and that the next one loads the file it
    /// has written.
    #[track_caller]
    fn is_compiled_anew(&self, reason: &str) {
        let engine = caching(&self.folder);
        assert_eq!(chosen(&engine, LEAST), 1, "{reason}");
        let stats = engine.cache_stats().unwrap();
        assert_eq!((stats.taken, stats.written), (0, 1), "{reason}: {stats:?}");
        assert_eq!(rejected(&stats), [reason], "{stats:?}");
        let next = caching(&self.folder);
        assert_eq!((chosen(&next, LEAST), taken(&next)), (1, 1), "{reason}");
    }
}

#[test]
fn compiled_code_is_loaded_from_the_cache_folder() {
    let kept = Kept::new();
    let modes = [&kept.folder, &kept.code, &kept.key()].map(|path| mode(path));
    assert_eq!(modes, [0o700, 0o600, 0o600]);
    let engine = caching(&kept.folder);
    assert_eq!(chosen(&engine, LEAST), 1);
    assert_eq!(taken(&engine), 1);
    assert_eq!(files(&kept.folder), std::slice::from_ref(&kept.code));
}

#[test]
fn code_of_another_policy_under_a_name_is_not_run() {
    let kept = Kept::new();
    assert_eq!(chosen(&caching(&kept.folder), BEHAVIOURS), 0);
    let others = files(&kept.folder).into_iter();
    let of_behaviours = others.clone().find(|file| *file != kept.code).unwrap();
    fs::copy(of_behaviours, &kept.code).unwrap();
    kept.is_compiled_anew("mac");
}

#[test]
fn a_damaged_file_is_compiled_again() {
    let kept = Kept::new();
    let whole = fs::read(&kept.code).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let mut other_mac = whole.clone();
    other_mac[16] ^= 1;
    for (damaged, reason) in [
        (&flipped[..], "mac"),
        (&other_mac, "mac"),
        (&whole[..whole.len() / 2], "mac"),
        (&whole[..20], "format"),
        (b"", "format"),
    ] {
        fs::write(&kept.code, damaged).unwrap();
        kept.is_compiled_anew(reason);
        assert!(fs::read(&kept.code).unwrap() == whole, "it was repaired");
    }
}

#[test]
fn a_file_that_others_may_write_or_that_is_no_plain_file_is_not_run() {
    for open in [0o620, 0o602, 0o666] {
        let kept = Kept::new();
        set_mode(&kept.code, open);
        kept.is_compiled_anew("mode");
    }
    let kept = Kept::new();
    fs::hard_link(&kept.code, kept.root.path().join("elsewhere")).unwrap();
    kept.is_compiled_anew("links");

    let kept = Kept::new();
    let elsewhere = kept.root.path().join("elsewhere");
    fs::rename(&kept.code, &elsewhere).unwrap();
    symlink(&elsewhere, &kept.code).unwrap();
    kept.is_compiled_anew("link");
    assert!(elsewhere.exists(), "only the link is removed");

    let kept = Kept::new();
    fs::remove_file(&kept.code).unwrap();
    fs::create_dir(&kept.code).unwrap();
    kept.is_compiled_anew("not-a-file");

    // Opening a pipe for reading blocks, unless it is opened without waiting.
    let kept = Kept::new();
    fs::remove_file(&kept.code).unwrap();
    mknodat(CWD, &kept.code, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    kept.is_compiled_anew("not-a-file");
}

#[test]
fn a_file_of_another_user_is_not_run() {
    let kept = Kept::new();
    // Only root may give files away.
    if chown(&kept.code, Some(65_534), None).is_ok() {
        kept.is_compiled_anew("owner");
        chown(kept.key(), Some(65_534), None).unwrap();
        kept.is_compiled_anew("owner");
    }
}

#[test]
fn code_of_another_folders_key_is_not_run() {
    let (kept, other) = (Kept::new(), Kept::new());
    fs::copy(&other.code, &kept.code).unwrap();
    kept.is_compiled_anew("mac");
    fs::copy(other.key(), kept.key()).unwrap();
    kept.is_compiled_anew("mac");
}

#[test]
fn with_a_key_that_others_had_in_hand_no_file_is_run() {
    type Attack = fn(&Kept);
    let attacks: [(Attack, &str); 5] = [
        (|kept| set_mode(&kept.key(), 0o640), "mode"),
        (|kept| fs::write(kept.key(), "short").unwrap(), "format"),
        (|kept| fs::write(kept.key(), [7; 33]).unwrap(), "too-long"),
        (
            |kept| fs::hard_link(kept.key(), kept.root.path().join("copy")).unwrap(),
            "links",
        ),
        (
            |kept| {
                fs::rename(kept.key(), kept.root.path().join("key")).unwrap();
                symlink("../key", kept.key()).unwrap();
            },
            "link",
        ),
    ];
    for (attack, reason) in attacks {
        let kept = Kept::new();
        let key = fs::read(kept.key()).unwrap();
        attack(&kept);
        kept.is_compiled_anew(reason);
        assert_ne!(fs::read(kept.key()).unwrap(), key, "{reason}: a new key");
        assert_eq!((mode(&kept.key()), mode(&kept.code)), (0o600, 0o600));
    }
}

#[test]
fn a_folder_that_was_open_is_emptied_and_closed() {
    for open in [0o755, 0o770, 0o701, 0o777] {
        let kept = Kept::new();
        let key = fs::read(kept.key()).unwrap();
        set_mode(&kept.folder, open);
        kept.is_compiled_anew("open-folder");
        assert_eq!(mode(&kept.folder), 0o700);
        assert_ne!(fs::read(kept.key()).unwrap(), key, "{open:o}: a new key");
    }
}

#[test]
fn an_open_folder_with_files_of_others_is_refused_and_left_as_it_is() {
    let kept = Kept::new();
    let other = kept.folder.join("a stranger's");
    fs::write(&other, "").unwrap();
    set_mode(&kept.folder, 0o755);
    let refused = CodeCache::open(&kept.folder).unwrap_err();
    assert!(matches!(refused, CodeCacheError::NotOurs { .. }), "{refused}");
    assert!(refused.to_string().contains("755"), "{refused}");
    assert!(mode(&kept.folder) == 0o755 && kept.code.exists() && other.exists());

    set_mode(&kept.folder, 0o700);
    CodeCache::open(&kept.folder).unwrap();
    let link = kept.root.path().join("link");
    symlink(&kept.folder, &link).unwrap();
    CodeCache::open(&link).unwrap_err();
    CodeCache::open(&kept.root.path().join("no/such/folder")).unwrap_err();
}

#[test]
fn a_folder_that_is_opened_to_others_while_it_is_used_is_emptied_before_it_is_read() {
    let kept = Kept::new();
    let engine = caching(&kept.folder);
    set_mode(&kept.folder, 0o777);
    assert_eq!(chosen(&engine, LEAST), 1);
    let stats = engine.cache_stats().unwrap();
    assert_eq!((stats.taken, stats.written), (0, 1));
    assert_eq!(
        (rejected(&stats), mode(&kept.folder)),
        (vec!["open-folder"], 0o700)
    );

    fs::write(kept.folder.join("a stranger's"), "").unwrap();
    set_mode(&kept.folder, 0o777);
    assert_eq!(chosen(&engine, LEAST), 1, "compiled, and not kept");
    let stats = engine.cache_stats().unwrap();
    assert_eq!((stats.taken, stats.written), (0, 1));
}

#[test]
fn old_files_make_room_for_new_ones_and_files_of_others_stay() {
    let kept = Kept::new();
    for number in 0..40 {
        let (ours, other) = (
            format!("{number:064x}-{number:016x}.code"),
            format!("{number}.code"),
        );
        fs::write(kept.folder.join(ours), "old").unwrap();
        fs::write(kept.folder.join(other), "a stranger's").unwrap();
    }
    let engine = caching(&kept.folder);
    chosen(&engine, BEHAVIOURS);
    assert_eq!(files(&kept.folder).len(), 32 + 40);
    assert_eq!(chosen(&engine, BEHAVIOURS), 0);
    assert_eq!(taken(&engine), 1);
}
