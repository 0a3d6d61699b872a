//! Replacement of the configuration file: written beside it, then renamed over it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use thiserror::Error;
use tracing::warn;

use crate::ConfigSource;

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
    #[error("failed to {step} `{}`", path.display())]
    System {
        /// Step.
        step: &'static str,
        /// Path of the step.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
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
        rustix::fs::access(folder, access).map_err(|error| system("write to", folder)(error.into()))
    }

    /// Replaces the file by a text. Its mode and owner stay. A failure leaves it as it was.
    ///
    /// # Errors
    /// [`WriteConfigError`].
    pub fn replace(&self, text: &str) -> Result<(), WriteConfigError> {
        let path = self.file().ok_or(WriteConfigError::NoFile)?;
        let before = regular(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let fresh = path.with_file_name(format!(".{name}.{}.saving", std::process::id()));
        // Left over by a process of the same id that was killed.
        let _ = fs::remove_file(&fresh);
        let written = write(&fresh, text, &before)
            .and_then(|()| fs::rename(&fresh, path).map_err(system("replace", path)));
        if written.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        written?;
        // Without it, a crash of the machine may bring the old file back, which is a whole one too.
        let synced = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
        if let Err(error) = synced {
            let error = &error as &dyn std::error::Error;
            warn!(error, "failed to flush the folder of the configuration");
        }
        Ok(())
    }
}

/// Returns the metadata of a regular file that is no link.
fn regular(path: &Path) -> Result<Metadata, WriteConfigError> {
    let found = fs::symlink_metadata(path).map_err(system("look at", path))?;
    if found.file_type().is_symlink() {
        return Err(WriteConfigError::Link(path.to_owned()));
    }
    if !found.is_file() {
        return Err(WriteConfigError::NotRegular(path.to_owned()));
    }
    Ok(found)
}

/// Writes a new file with the mode and owner of another one.
fn write(fresh: &Path, text: &str, before: &Metadata) -> Result<(), WriteConfigError> {
    let mut options = OpenOptions::new();
    // It may hold secrets: no other user reads it before it has its mode. `create_new` follows no link.
    let file = options.write(true).create_new(true).mode(0o600).open(fresh);
    let mut file = file.map_err(system("create", fresh))?;
    let own = file.metadata().map_err(system("look at", fresh))?;
    if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
        let owned = fchown(&file, Some(before.uid()), Some(before.gid()));
        owned.map_err(system("keep the owner of", fresh))?;
    }
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.set_permissions(before.permissions()))
        .and_then(|()| file.sync_all());
    written.map_err(system("write", fresh))
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn system(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteConfigError {
    let path = path.to_owned();
    move |source| WriteConfigError::System { step, path, source }
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
        assert!(matches!(error, WriteConfigError::System { .. }), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        assert_eq!(names(folder.path()), ["link", "target"]);
    }

    #[test]
    fn a_link_in_the_place_of_the_new_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conductor.toml");
        let victim = folder.path().join("victim");
        fs::write(&path, "old").unwrap();
        fs::write(&victim, "kept").unwrap();
        let fresh = format!(".conductor.toml.{}.saving", std::process::id());
        symlink(&victim, folder.path().join(fresh)).unwrap();
        ConfigSource::File(path.clone()).replace("new").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
