//! Component in a policy folder, and the file that it replaced.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process;

use super::refusal::DeployError;
use crate::policy::component::replace_component;

/// Component that was put into a policy folder. A router may be watching the folder.
#[derive(Debug)]
pub(super) struct PlacedFile {
    path: PathBuf,
    bytes: Vec<u8>,
    before: FileBefore,
}

/// File that was at a path before a component was put there.
#[derive(Debug)]
enum FileBefore {
    Missing,
    File {
        bytes: Vec<u8>,
        found: Metadata,
    },
    /// Link with this target. The target itself has not changed.
    Link(PathBuf),
}

impl FileBefore {
    fn read(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Missing),
            Err(error) => Err(error),
            Ok(found) if found.is_symlink() => fs::read_link(path).map(Self::Link),
            Ok(found) => Ok(Self::File {
                bytes: fs::read(path)?,
                found,
            }),
        }
    }

    fn restore(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Missing => fs::remove_file(path),
            Self::File { bytes, .. } => self.write(path, bytes),
            Self::Link(target) => {
                // Hidden files are no policies. Another command may be at work on the same name.
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let part = path.with_file_name(format!(".{name}.{}.part", process::id()));
                let replaced = symlink(target, &part).and_then(|()| fs::rename(&part, path));
                if replaced.is_err() {
                    let _ = fs::remove_file(&part);
                }
                replaced
            }
        }
    }

    /// Writes a file as a whole, with mode and owner of the file that was there, if the user may.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let found = match self {
            Self::File { found, .. } => Some(found),
            Self::Missing | Self::Link(_) => None,
        };
        replace_component(path, bytes, found).map_err(|error| error.source)
    }
}

impl PlacedFile {
    /// Puts a component into the folder, whole or not at all.
    pub(super) fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<Self, DeployError> {
        let path = folder.join(format!("{name}.wasm"));
        let placed = FileBefore::read(&path).and_then(|before| {
            before.write(&path, bytes)?;
            Ok(before)
        });
        match placed {
            Ok(before) => Ok(Self {
                path,
                bytes: bytes.to_vec(),
                before,
            }),
            Err(source) => Err(DeployError::Write { path, source }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file back that was there, or removes the component. Returns false if it changed nothing: the path has
    /// other bytes by now, or it is gone although there was a file before.
    pub(super) fn take_back(&self) -> Result<bool, DeployError> {
        let done = match fs::read(&self.path) {
            Ok(found) if found == self.bytes => self.before.restore(&self.path).map(|()| true),
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(matches!(self.before, FileBefore::Missing))
            }
            Err(error) => Err(error),
        };
        done.map_err(|source| DeployError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

    use super::*;

    #[test]
    fn a_component_is_put_in_place_whole_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        for bytes in [b"one".as_slice(), b"two"] {
            let placed = PlacedFile::put(folder.path(), "mine", bytes).unwrap();
            assert_eq!(fs::read(placed.path()).unwrap(), bytes);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(PlacedFile::put(&folder.path().join("none"), "mine", b"x").is_err());
    }

    #[test]
    fn a_component_that_is_taken_back_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let first = PlacedFile::put(folder.path(), "mine", b"one").unwrap();
        // Only root can.
        let _ = chown(first.path(), Some(1234), Some(1234));
        fs::set_permissions(first.path(), Permissions::from_mode(0o640)).unwrap();
        let access = || {
            let found = fs::metadata(first.path()).unwrap();
            (found.mode() & 0o777, found.uid(), found.gid())
        };
        let before = access();
        let second = PlacedFile::put(folder.path(), "mine", b"two").unwrap();
        assert_eq!(access(), before);
        assert!(second.take_back().unwrap());
        assert_eq!(fs::read(first.path()).unwrap(), b"one");
        assert_eq!((access(), before.0), (before, 0o640));
        assert!(first.take_back().unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn bytes_that_were_put_there_since_stay() {
        let folder = tempfile::tempdir().unwrap();
        let first = PlacedFile::put(folder.path(), "mine", b"one").unwrap();
        let second = PlacedFile::put(folder.path(), "mine", b"two").unwrap();
        assert!(!first.take_back().unwrap());
        assert_eq!(fs::read(first.path()).unwrap(), b"two");
        fs::remove_file(second.path()).unwrap();
        assert!(
            !second.take_back().unwrap(),
            "the file that it replaced is gone too"
        );
        assert!(first.take_back().unwrap(), "it is gone");
    }

    #[test]
    fn a_link_comes_back_as_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("mine.wasm");
        fs::write(folder.path().join("v1"), b"one").unwrap();
        // The second one has no target.
        for target in ["v1", "v2"] {
            let _ = fs::remove_file(&at);
            symlink(target, &at).unwrap();
            let placed = PlacedFile::put(folder.path(), "mine", b"two").unwrap();
            assert!(!at.is_symlink());
            assert!(placed.take_back().unwrap());
            assert_eq!(fs::read_link(&at).unwrap(), Path::new(target));
        }
        assert_eq!(fs::read(folder.path().join("v1")).unwrap(), b"one");
    }

    #[test]
    fn a_folder_under_two_paths_has_its_file_again_if_the_last_placed_is_taken_back_first() {
        let root = tempfile::tempdir().unwrap();
        let (folder, link) = (root.path().join("folder"), root.path().join("link"));
        fs::create_dir(&folder).unwrap();
        symlink(&folder, &link).unwrap();
        fs::write(folder.join("mine.wasm"), b"one").unwrap();
        let placed = [&folder, &link].map(|folder| PlacedFile::put(folder, "mine", b"two").unwrap());
        for file in placed.iter().rev() {
            assert!(file.take_back().unwrap());
        }
        assert_eq!(fs::read(folder.join("mine.wasm")).unwrap(), b"one");
    }
}
