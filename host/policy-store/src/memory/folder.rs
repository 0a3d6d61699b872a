//! Folder of `[server] policy-state`: one file per policy, replaced atomically.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::saved_memory::{FileDamage, MAX_FILE, SavedMemory};
use local_files::{NewFileAccess, regular_file, replace_file};

/// Ending of the file with the memory of a policy.
pub(super) const STATE: &str = "state";
/// Most damaged files that are kept per policy.
const MOST_DAMAGED: u32 = 100;

/// Error of reading a file.
#[derive(Debug, Error)]
pub(super) enum ReadError {
    #[error("failed to read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to parse `{}`", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: FileDamage,
    },
}

/// Folder of the files.
#[derive(Debug)]
pub struct StateFolder(pub(super) PathBuf);

impl StateFolder {
    /// Creates the folder if it does not exist.
    pub(super) fn make(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)
    }

    /// Reads the memory of a policy, if there is a file.
    pub(super) fn read(&self, policy: &str) -> Result<Option<SavedMemory>, ReadError> {
        let path = self.path(policy);
        let bytes = match read_bounded(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(ReadFailure::TooLarge(size)) => {
                let source = FileDamage::TooLarge(size);
                return Err(ReadError::Damaged { path, source });
            }
            Err(ReadFailure::Failed(source)) => return Err(ReadError::Read { path, source }),
        };
        match SavedMemory::decode(&bytes) {
            Ok(saved) => Ok(Some(saved)),
            Err(source) => Err(ReadError::Damaged { path, source }),
        }
    }

    /// Replaces the file of a policy atomically.
    pub(super) fn write(&self, policy: &str, saved: &SavedMemory) -> io::Result<()> {
        self.replace(&self.path(policy), &saved.encode())
    }

    /// Replaces the file of a policy with that ending atomically.
    ///
    /// # Errors
    /// The system's error.
    pub fn put(&self, policy: &str, ending: &str, bytes: &[u8]) -> io::Result<()> {
        self.replace(&self.file(policy, ending), bytes)
    }

    /// Returns the content of a policy's file with that ending, if it exists.
    ///
    /// # Errors
    /// The system's error, or a file over the limit.
    pub fn get(&self, policy: &str, ending: &str) -> io::Result<Option<Vec<u8>>> {
        match read_bounded(&self.file(policy, ending)) {
            Ok(found) => Ok(found),
            Err(ReadFailure::Failed(error)) => Err(error),
            Err(ReadFailure::TooLarge(size)) => Err(io::Error::other(FileDamage::TooLarge(size))),
        }
    }

    /// Removes the file of a policy with that ending, if it exists.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, policy: &str, ending: &str) -> io::Result<()> {
        match fs::remove_file(self.file(policy, ending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make()?;
        // The memory of a policy may concern clients.
        replace_file(path, bytes, NewFileAccess::Mode(0o600)).map_err(|error| error.source)
    }

    /// Renames a damaged file to an unused name, and returns it.
    pub(super) fn put_aside(&self, policy: &str, ending: &str) -> io::Result<PathBuf> {
        let path = self.file(policy, ending);
        let name = |number: u32| match number {
            1 => added(&path, ".damaged"),
            _ => added(&path, &format!(".damaged-{number}")),
        };
        let aside = (1..=MOST_DAMAGED).map(name).find(|aside| !aside.exists());
        let aside = aside.ok_or_else(|| io::Error::other("there are too many damaged files already"))?;
        fs::rename(&path, &aside)?;
        Ok(aside)
    }

    fn path(&self, policy: &str) -> PathBuf {
        self.file(policy, STATE)
    }

    fn file(&self, policy: &str, ending: &str) -> PathBuf {
        self.0.join(format!("{}.{ending}", file_name(policy)))
    }
}

enum ReadFailure {
    TooLarge(u64),
    Failed(io::Error),
}

impl From<io::Error> for ReadFailure {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

fn read_bounded(path: &Path) -> Result<Option<Vec<u8>>, ReadFailure> {
    let file = match regular_file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    // The file may grow meanwhile.
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(ReadFailure::TooLarge(size));
    }
    Ok(Some(bytes))
}

fn added(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// Returns a name as part of a file's: unsafe characters are written as `%` and two hexadecimal digits.
fn file_name(policy: &str) -> String {
    policy.bytes().fold(String::new(), |mut name, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            name.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(name, "%{byte:02x}");
        }
        name
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn saved(value: u8) -> SavedMemory {
        SavedMemory {
            values: vec![("k".into(), vec![value])],
            sessions: vec![],
        }
    }

    #[test]
    fn a_file_replaces_the_one_before_and_another_policys_is_another() {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder(place.path().join("made/here"));
        assert_eq!(folder.read("mine").unwrap(), None);
        folder.write("mine", &saved(1)).unwrap();
        folder.write("mine", &saved(2)).unwrap();
        folder.write("mine (shadow)", &saved(3)).unwrap();
        assert_eq!(folder.read("mine").unwrap(), Some(saved(2)));
        assert_eq!(folder.read("mine (shadow)").unwrap(), Some(saved(3)));
        let names = fs::read_dir(&folder.0).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["mine%20%28shadow%29.state", "mine.state"]);
    }

    #[test]
    fn damaged_files_are_put_aside_one_beside_the_other() {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder(place.path().to_owned());
        for (round, name) in ["mine.state.damaged", "mine.state.damaged-2"].iter().enumerate() {
            let text = format!("not ours {round}");
            fs::write(folder.path("mine"), &text).unwrap();
            assert!(matches!(folder.read("mine"), Err(ReadError::Damaged { .. })));
            folder.put_aside("mine", STATE).unwrap();
            assert_eq!(fs::read_to_string(place.path().join(name)).unwrap(), text);
            assert_eq!(folder.read("mine").unwrap(), None);
        }
    }

    #[test]
    fn a_pipe_does_not_block() {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder(place.path().to_owned());
        let make_pipe = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        make_pipe(&folder.path("mine"));
        assert!(matches!(folder.read("mine"), Err(ReadError::Read { .. })));
        let fresh = format!(".other.state.{}.saving", std::process::id());
        make_pipe(&place.path().join(fresh));
        folder.write("other", &saved(1)).unwrap();
        assert_eq!(folder.read("other").unwrap(), Some(saved(1)));
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        assert_eq!(file_name("../a/ü"), "..%2fa%2f%c3%bc");
    }
}
