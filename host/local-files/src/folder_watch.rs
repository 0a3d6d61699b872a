//! File watcher: reports that something changed in the folders of the configuration and the policies.
//!
//! It reports no details: the receiver reads the files again and compares their bytes. A save may be a write, a
//! rename over the old file (editors, `mv`) or a swap of a symlinked folder (Kubernetes config maps). Folders are
//! watched, never files, because a rename leaves a file's watch on the dead inode. They are watched by their real
//! paths: a folder behind a link that moves is another one. Writes to other files of the folders are not reported: a
//! log there grows with each line.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::ModifyKind;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use thiserror::Error;

/// Most links that one path is followed through, as in the system.
const MOST_LINKS: usize = 40;

/// Watcher of folders. It calls a function for each change.
#[derive(Debug)]
pub struct FolderWatch {
    watcher: RecommendedWatcher,
    /// Real paths of the watched folders.
    folders: BTreeSet<PathBuf>,
    wanted: Arc<Mutex<WantedWrites>>,
}

/// Files and folders of which writes are reported.
#[derive(Debug, Default)]
struct WantedWrites {
    /// Names of files and of their targets, in any watched folder.
    names: HashSet<OsString>,
    /// Real paths of the folders of which all files matter.
    folders: HashSet<PathBuf>,
}

/// Error of watching folders.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The system offers no watch.
    #[error("set up watching of files")]
    Start(#[source] notify::Error),
    /// One folder.
    #[error("watch the folder `{}`", folder.display())]
    Folder {
        /// Path of the folder.
        folder: PathBuf,
        /// Error of the system.
        #[source]
        source: notify::Error,
    },
}

impl FolderWatch {
    /// Calls `notify` for every change of the set paths, on a thread of the watcher's.
    ///
    /// # Errors
    /// [`WatchError::Start`].
    pub fn start(notify: impl Fn() + Send + 'static) -> Result<Self, WatchError> {
        let wanted = Arc::<Mutex<WantedWrites>>::default();
        let writes = Arc::clone(&wanted);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error means that events were lost: reading again is right then too.
            let is_change = event.map_or(true, |event| {
                let writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
                writes.is_change(&event)
            });
            if is_change {
                notify();
            }
        });
        Ok(Self {
            watcher: watcher.map_err(WatchError::Start)?,
            folders: BTreeSet::new(),
            wanted,
        })
    }

    /// Watches exactly the folders of these paths (and the folders they point to through symlinks).
    ///
    /// # Errors
    /// The first folder that cannot be watched; the others are watched all the same.
    pub fn set<'a>(&mut self, paths: impl IntoIterator<Item = &'a Path>) -> Result<(), WatchError> {
        let paths: Vec<&Path> = paths.into_iter().collect();
        let wanted: BTreeSet<PathBuf> = paths.iter().copied().flat_map(folders_of).collect();
        // Before the folders, so that no write to a new one is missed.
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = WantedWrites::of(&paths);
        let mut failed = Ok(());
        for gone in self.folders.difference(&wanted) {
            // A folder that was deleted has lost its watch already.
            let _ = self.watcher.unwatch(gone);
        }
        let mut watched: BTreeSet<PathBuf> = self.folders.intersection(&wanted).cloned().collect();
        for folder in wanted.difference(&self.folders) {
            match self.watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(folder.clone());
                }
                Err(source) if failed.is_ok() => {
                    failed = Err(WatchError::Folder {
                        folder: folder.clone(),
                        source,
                    });
                }
                Err(_) => {}
            }
        }
        self.folders = watched;
        failed
    }
}

impl WantedWrites {
    /// Returns those of these paths.
    fn of(paths: &[&Path]) -> Self {
        let real = |path: &Path| path.canonicalize().ok();
        let (folders, files): (Vec<&Path>, Vec<&Path>) = paths.iter().partition(|path| path.is_dir());
        let name = |path: &Path| path.file_name().map(OsString::from);
        let targets = files.iter().filter_map(|file| name(&real(file)?));
        Self {
            names: files
                .iter()
                .filter_map(|file| name(file))
                .chain(targets)
                .collect(),
            folders: folders.into_iter().filter_map(real).collect(),
        }
    }

    /// Returns true unless an event is a read, or a write to another file. Any new or changed name may be a swap of
    /// links.
    fn is_change(&self, event: &notify::Event) -> bool {
        let is_wanted = |path: &PathBuf| {
            path.file_name().is_some_and(|name| self.names.contains(name))
                || path.parent().is_some_and(|folder| self.folders.contains(folder))
        };
        match event.kind {
            EventKind::Access(_) => false,
            EventKind::Modify(ModifyKind::Data(_)) => {
                event.paths.is_empty() || event.paths.iter().any(is_wanted)
            }
            _ => true,
        }
    }
}

/// Returns the real folders that hold the path's name, its target and the links on the way.
fn folders_of(path: &Path) -> BTreeSet<PathBuf> {
    let folder = |path: &Path| match path.is_dir() {
        true => Some(path.to_owned()),
        false => path.parent().map(or_here),
    };
    let real = path.canonicalize().ok();
    let own = [folder(path), real.as_deref().and_then(folder)];
    let folders = own.into_iter().flatten().chain(folders_of_links(path));
    let folders = folders.filter_map(|folder| folder.canonicalize().ok());
    folders.filter(|folder| folder.is_dir()).collect()
}

/// Returns the folders that hold the symlinks which the path and the targets of its links run through: a link that
/// moves gives the path another file.
fn folders_of_links(path: &Path) -> Vec<PathBuf> {
    let (mut folders, mut seen) = (Vec::new(), HashSet::new());
    let mut paths = vec![path.to_owned()];
    while let Some(path) = paths.pop() {
        let links = path.ancestors().filter(|folder| folder.is_symlink());
        for link in links {
            // Targets run through the same links again.
            if seen.len() >= MOST_LINKS || !seen.insert(link.to_owned()) {
                continue;
            }
            let parent = link.parent().map(or_here).unwrap_or_default();
            paths.extend(link.read_link().map(|target| parent.join(target)));
            folders.push(parent);
        }
    }
    folders
}

/// Returns the folder, or the working directory for an empty path.
fn or_here(folder: &Path) -> PathBuf {
    match folder.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => folder.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::time::Duration;

    use super::*;

    fn watching(path: &Path) -> (FolderWatch, Receiver<()>) {
        let (sender, changes) = sync_channel(1);
        let mut watch = FolderWatch::start(move || _ = sender.try_send(())).unwrap();
        watch.set([path]).unwrap();
        (watch, changes)
    }

    #[track_caller]
    fn is_notified(changes: &Receiver<()>) {
        changes
            .recv_timeout(Duration::from_secs(30))
            .expect("the change was not noticed");
    }

    #[test]
    fn a_rename_over_the_file_is_noticed_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("conductor.toml");
        fs::write(&file, "0").unwrap();
        let (_watch, changes) = watching(&file);
        for round in 1..=3 {
            while changes.try_recv().is_ok() {}
            let fresh = folder.path().join("fresh");
            fs::write(&fresh, round.to_string()).unwrap();
            fs::rename(&fresh, &file).unwrap();
            is_notified(&changes);
        }
    }

    #[test]
    fn a_swap_of_a_symlinked_folder_is_noticed() {
        // As the kubelet does it: file -> ..data/file, and ..data is renamed onto another folder.
        let root = tempfile::tempdir().unwrap();
        for version in ["v1", "v2"] {
            fs::create_dir(root.path().join(version)).unwrap();
            fs::write(root.path().join(version).join("conductor.toml"), version).unwrap();
        }
        let link =
            |target: &str, name: &str| std::os::unix::fs::symlink(target, root.path().join(name)).unwrap();
        link("v1", "..data");
        link("..data/conductor.toml", "conductor.toml");
        let file = root.path().join("conductor.toml");
        let (_watch, changes) = watching(&file);
        link("v2", "..data_tmp");
        fs::rename(root.path().join("..data_tmp"), root.path().join("..data")).unwrap();
        is_notified(&changes);
        assert_eq!(fs::read_to_string(&file).unwrap(), "v2");
    }

    #[test]
    fn a_move_of_a_link_above_the_file_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir_all(at(version).join("conf")).unwrap();
            fs::write(at(version).join("conf/conductor.toml"), version).unwrap();
        }
        std::os::unix::fs::symlink("v1", at("current")).unwrap();
        let file = at("current").join("conf/conductor.toml");
        let (_watch, changes) = watching(&file);
        std::os::unix::fs::symlink("v2", at("next")).unwrap();
        fs::rename(at("next"), at("current")).unwrap();
        is_notified(&changes);
        assert_eq!(fs::read_to_string(&file).unwrap(), "v2");
    }

    #[test]
    fn a_move_of_a_link_behind_another_link_is_noticed_at_its_new_place_too() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, at(name)).unwrap();
        let moved = |target: &str, name: &str| {
            link(target, "next");
            fs::rename(at("next"), at(name)).unwrap();
        };
        for version in ["v1", "v2", "v3"] {
            fs::create_dir_all(at("versions").join(version)).unwrap();
            fs::write(at("versions").join(version).join("f"), version).unwrap();
        }
        for release in ["r1", "r2"] {
            fs::create_dir(at(release)).unwrap();
            link("../versions/v1", &format!("{release}/current"));
        }
        fs::create_dir(at("conf")).unwrap();
        link("r1", "release");
        link("../release/current/f", "conf/f");
        for file in [at("release/current/f"), at("conf/f")] {
            moved("r1", "release");
            let (mut watch, changes) = watching(&file);
            moved("r2", "release");
            is_notified(&changes);
            watch.set([&*file]).unwrap();
            for version in ["v2", "v3"] {
                while changes.try_recv().is_ok() {}
                moved(&format!("../versions/{version}"), "r2/current");
                is_notified(&changes);
                assert_eq!(fs::read_to_string(&file).unwrap(), version);
            }
        }
    }

    #[test]
    fn links_in_a_ring_and_a_folder_by_two_paths_are_watched_once() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().canonicalize().unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, real.join(name)).unwrap();
        link("two/f", "one");
        link("one/f", "two");
        link(".", "here");
        assert!(folders_of(&real.join("one")).iter().eq([&real]));
        assert!(folders_of(&real.join("here/file")).iter().eq([&real]));
    }

    #[test]
    fn a_write_to_the_file_or_to_its_target_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (
            folder.path().join("target.toml"),
            folder.path().join("conductor.toml"),
        );
        fs::write(&file, "0").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            let (_watch, changes) = watching(path);
            append(path);
            is_notified(&changes);
        }
    }

    /// Appends to a file, which is one event.
    fn append(path: &Path) {
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"x").unwrap();
    }

    #[test]
    fn a_file_that_grows_beside_the_configuration_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["conductor.toml", "router.log", "decisions.jsonl"] {
            fs::write(at(name), "0").unwrap();
        }
        let (sender, changes) = sync_channel(1000);
        let mut watch = FolderWatch::start(move || _ = sender.try_send(())).unwrap();
        watch.set([&*at("conductor.toml")]).unwrap();
        let rounds = 10;
        for round in 0..rounds {
            append(&at("router.log"));
            append(&at("decisions.jsonl"));
            // A new name is one change, and comes after the writes.
            fs::create_dir(at(&round.to_string())).unwrap();
        }
        for _ in 0..rounds {
            is_notified(&changes);
        }
        drop(watch);
        assert_eq!(changes.try_iter().count(), 0, "the writes are no changes");
    }

    #[test]
    fn a_write_in_a_folder_of_the_paths_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine.wasm"), "0").unwrap();
        let (_watch, changes) = watching(folder.path());
        append(&folder.path().join("mine.wasm"));
        is_notified(&changes);
    }

    #[test]
    fn a_file_dropped_into_a_watched_folder_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (_watch, changes) = watching(folder.path());
        fs::write(folder.path().join("mine.wasm"), "x").unwrap();
        is_notified(&changes);
    }
}
