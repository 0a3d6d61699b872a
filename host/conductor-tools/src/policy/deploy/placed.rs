//! Component in a policy folder, and the bytes that it replaced.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::refusal::DeployError;

/// Component that was put into a policy folder. A router may be watching the folder.
#[derive(Debug)]
pub(super) struct PlacedFile {
    path: PathBuf,
    /// Bytes that were there. `None` where there was no file.
    before: Option<Vec<u8>>,
}

impl PlacedFile {
    /// Puts a component into the folder, whole or not at all.
    pub(super) fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<Self, DeployError> {
        let path = folder.join(format!("{name}.wasm"));
        let before = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        };
        let placed = before.and_then(|before| {
            write(&path, bytes)?;
            Ok(before)
        });
        match placed {
            Ok(before) => Ok(Self { path, before }),
            Err(source) => Err(DeployError::Write { path, source }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the bytes back that were there, or removes the file.
    pub(super) fn take_back(&self) -> Result<(), DeployError> {
        let done = match &self.before {
            Some(before) => write(&self.path, before),
            None => fs::remove_file(&self.path),
        };
        done.map_err(|source| DeployError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

/// Writes a file by rename.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Hidden files are no policies.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = path.with_file_name(format!(".{name}.part"));
    let written = File::create(&part).and_then(|mut part| {
        part.write_all(bytes)?;
        part.sync_data()
    });
    let written = written.and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
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
        let second = PlacedFile::put(folder.path(), "mine", b"two").unwrap();
        second.take_back().unwrap();
        assert_eq!(fs::read(first.path()).unwrap(), b"one");
        first.take_back().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
