//! Replacement of the configuration file.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::ConfigSource;
use crate::replace_file::{NewFileAccess, ReplaceError, failed, folder_of, replace_file};

/// Reason why the configuration file cannot be replaced.
#[derive(Debug, Error)]
pub enum WriteConfigError {
    /// There is no file.
    #[error("the configuration is made of flags, not read from a file")]
    NoFile,
    /// The path is a symbolic link: a deployment tool manages its target.
    #[error("`{}` is a symbolic link: edit what it points to where that is managed", .0.display())]
    Link(PathBuf),
    /// The path is a pipe, a device or a folder.
    #[error("`{}` is no regular file", .0.display())]
    NotRegular(PathBuf),
    /// The system refused a step.
    #[error(transparent)]
    System(#[from] ReplaceError),
}

impl ConfigSource {
    /// Checks that the file can be replaced, without a change.
    ///
    /// # Errors
    /// [`WriteConfigError`].
    pub fn check_writable(&self) -> Result<(), WriteConfigError> {
        let path = self.file().ok_or(WriteConfigError::NoFile)?;
        regular(path)?;
        let folder = folder_of(path);
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        let allowed = rustix::fs::access(folder, access);
        Ok(allowed.map_err(|error| failed("write to", folder)(error.into()))?)
    }

    /// Replaces the file by a text. Its mode and owner stay. A failure leaves it as it was.
    ///
    /// # Errors
    /// [`WriteConfigError`].
    pub fn replace(&self, text: &str) -> Result<(), WriteConfigError> {
        let path = self.file().ok_or(WriteConfigError::NoFile)?;
        let before = regular(path)?;
        Ok(replace_file(path, text.as_bytes(), NewFileAccess::Of(&before))?)
    }
}

/// Returns the metadata of a regular file that is no link.
fn regular(path: &Path) -> Result<Metadata, WriteConfigError> {
    let found = fs::symlink_metadata(path).map_err(failed("look at", path))?;
    if found.file_type().is_symlink() {
        return Err(WriteConfigError::Link(path.to_owned()));
    }
    if !found.is_file() {
        return Err(WriteConfigError::NotRegular(path.to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conductor.toml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let source = ConfigSource::File(path.clone());
        source.check_writable().unwrap();
        source.replace("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(names(folder.path()), ["conductor.toml"]);
    }

    #[test]
    fn links_folders_and_flags_are_refused_and_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "old").unwrap();
        symlink(&target, &link).unwrap();
        let refused = |source: &ConfigSource| {
            assert!(source.check_writable().is_err());
            source.replace("new").unwrap_err()
        };
        assert!(matches!(
            refused(&ConfigSource::File(link)),
            WriteConfigError::Link(_)
        ));
        let error = refused(&ConfigSource::File(folder.path().to_owned()));
        assert!(matches!(error, WriteConfigError::NotRegular(_)), "{error}");
        let error = refused(&ConfigSource::Text(String::new()));
        assert!(matches!(error, WriteConfigError::NoFile), "{error}");
        let error = refused(&ConfigSource::File(folder.path().join("absent")));
        assert!(matches!(error, WriteConfigError::System(_)), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        assert_eq!(names(folder.path()), ["link", "target"]);
    }
}
