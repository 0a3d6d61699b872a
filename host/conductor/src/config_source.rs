//! Where the configuration's text comes from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use conductor_config::PolicyFiles;
use thiserror::Error;

use crate::policy_library::policies_in;

/// A configuration file, or text that stands for one.
#[derive(Debug, Clone)]
pub enum ConfigSource {
    /// Read again whenever it changes.
    File(PathBuf),
    /// Made from flags; never changes.
    Text(String),
}

/// The text could not be had.
#[derive(Debug, Error)]
#[error("failed to read the configuration `{}`", path.display())]
pub struct ReadConfigError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl ConfigSource {
    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text(_) => "command line".to_owned(),
        }
    }

    /// The text as it is now.
    ///
    /// # Errors
    /// [`ReadConfigError`].
    pub fn read(&self) -> Result<String, ReadConfigError> {
        match self {
            Self::File(path) => fs::read_to_string(path).map_err(|source| ReadConfigError {
                path: path.clone(),
                source,
            }),
            Self::Text(text) => Ok(text.clone()),
        }
    }

    /// The file to watch, where there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text(_) => None,
        }
    }

    /// A path of the configuration: relative ones are relative to the file's folder.
    #[must_use]
    pub fn resolve(&self, path: &Path) -> PathBuf {
        match self.file().and_then(Path::parent) {
            Some(folder) => folder.join(path),
            None => path.to_owned(),
        }
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

    fn is_no_folder(&self, path: &Path) -> bool {
        let path = self.resolve(path);
        path.exists() && !path.is_dir()
    }
}

#[cfg(test)]
mod tests {
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
}
