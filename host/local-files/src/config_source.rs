//! Source of the configuration's text.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use conductor_config::{Diagnostics, PolicyFiles};
use thiserror::Error;

use crate::policy_folder::policies_in;
use crate::regular_file::read_bounded;

/// Age below which the file may be half-written.
const SETTLING: Duration = Duration::from_millis(500);
/// Most bytes that are read. The parser refuses less, and names the size.
const LONGEST: u64 = 16 << 20;

/// Configuration file, or text that stands for one.
#[derive(Debug, Clone)]
pub enum ConfigSource {
    /// File that is read again at each change.
    File(PathBuf),
    /// Text made from flags; it never changes.
    Text(String),
}

/// Error of reading a configuration's text.
#[derive(Debug, Error)]
pub enum ReadConfigError {
    /// The file is unreadable.
    #[error("failed to read the configuration `{}`", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The path is a pipe, a device or a folder.
    #[error(
        "failed to read the configuration `{}`: it is no regular file, and the router reads it again at each change: save \
         the text to a file and name that",
        .0.display()
    )]
    NotRegular(PathBuf),
    /// The file is not UTF-8 text.
    #[error("failed to read the configuration as text")]
    NotUtf8(#[source] Diagnostics),
}

impl ConfigSource {
    /// Returns the name for messages.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text(_) => "command line".to_owned(),
        }
    }

    /// Reads the current text.
    ///
    /// # Errors
    /// [`ReadConfigError`].
    pub fn read(&self) -> Result<String, ReadConfigError> {
        match self {
            Self::File(path) => {
                let bytes = read_bounded(path, LONGEST).map_err(|source| failed_read(path, source))?;
                conductor_config::decode(&self.name(), bytes).map_err(ReadConfigError::NotUtf8)
            }
            Self::Text(text) => Ok(text.clone()),
        }
    }

    /// Returns true if the file was modified a moment before `now`: its writer may not have finished.
    #[must_use]
    pub fn is_settling(&self, now: SystemTime) -> bool {
        let modified = self
            .file()
            .and_then(|path| fs::metadata(path).ok()?.modified().ok());
        // The clock of a file server may be ahead: such a file is not waited for.
        let age = modified.and_then(|modified| now.duration_since(modified).ok());
        age.is_some_and(|age| age < SETTLING)
    }

    /// Returns the file to watch, if any.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text(_) => None,
        }
    }

    /// Resolves a path of the configuration. Relative paths start at the file's folder.
    #[must_use]
    pub fn resolve(&self, path: &Path) -> PathBuf {
        match self.file().and_then(Path::parent) {
            Some(folder) => folder.join(path),
            None => path.to_owned(),
        }
    }
}

fn failed_read(path: &Path, source: io::Error) -> ReadConfigError {
    let path = path.to_owned();
    match fs::metadata(&path) {
        Ok(found) if !found.is_file() => ReadConfigError::NotRegular(path),
        _ => ReadConfigError::File { path, source },
    }
}

impl PolicyFiles for ConfigSource {
    fn names_in(&self, folder: &Path) -> Vec<String> {
        let found = policies_in(&self.resolve(folder)).into_iter();
        found.map(|(name, _)| name).collect()
    }

    fn is_missing(&self, folder: &Path) -> bool {
        !self.resolve(folder).exists()
    }

    fn unreadable(&self, folder: &Path) -> Option<String> {
        let error = fs::read_dir(self.resolve(folder)).err()?;
        (error.kind() != io::ErrorKind::NotFound).then(|| error.to_string())
    }

    fn is_no_folder(&self, path: &Path) -> bool {
        let path = self.resolve(path);
        path.exists() && !path.is_dir()
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn paths_are_relative_to_the_file() {
        let source = ConfigSource::File("/etc/conductor/conductor.toml".into());
        assert_eq!(
            source.resolve(Path::new("policies.d")),
            Path::new("/etc/conductor/policies.d")
        );
        assert_eq!(source.resolve(Path::new("/var/p")), Path::new("/var/p"));
    }

    #[test]
    fn bytes_that_are_not_text_are_reported_with_their_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), b"[server]\nlisten = \"\xff\"\n").unwrap();
        let error = ConfigSource::File(file.path().to_owned()).read().unwrap_err();
        let ReadConfigError::NotUtf8(mistakes) = error else {
            panic!("{error:?}");
        };
        assert_eq!(mistakes.items()[0].primary.location.to_string(), "2:11");
    }

    #[test]
    fn a_configuration_that_is_a_pipe_or_a_folder_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [&pipe, folder.path()] {
            let refused = ConfigSource::File(path.to_owned()).read().unwrap_err();
            assert!(matches!(refused, ReadConfigError::NotRegular(_)), "{refused:?}");
            assert!(
                refused.to_string().contains("save the text to a file"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_configuration_without_an_end_is_not_read_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(LONGEST + 1).unwrap();
        let refused = ConfigSource::File(file.path().to_owned()).read().unwrap_err();
        assert!(
            matches!(&refused, ReadConfigError::File { source, .. } if source.kind() == io::ErrorKind::FileTooLarge),
            "{refused:?}"
        );
    }

    #[test]
    fn an_unreadable_folder_differs_from_a_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        let source = ConfigSource::File(folder.path().join("conductor.toml"));
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(
            source
                .unreadable(Path::new("file"))
                .is_some_and(|why| !why.is_empty())
        );
        assert_eq!(source.unreadable(Path::new("absent")), None);
        assert_eq!(source.unreadable(Path::new(".")), None);
    }
}
