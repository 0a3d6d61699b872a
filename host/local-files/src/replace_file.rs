//! Replacement of a file as a whole: the bytes are written beside it, then renamed over it.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use thiserror::Error;
use tracing::warn;

/// Mode and owner of the new file.
#[derive(Debug, Clone, Copy)]
pub enum NewFileAccess<'a> {
    /// This mode, and the owner of the process.
    Mode(u32),
    /// Mode and owner of the replaced file.
    Of(&'a Metadata),
}

/// Failed step of a replacement.
#[derive(Debug, Error)]
#[error("failed to {step} `{}`", path.display())]
pub struct ReplaceError {
    /// Step.
    pub step: &'static str,
    /// Path of the step.
    pub path: PathBuf,
    /// Error of the system.
    #[source]
    pub source: io::Error,
}

/// Replaces a file by these bytes, or creates it. A reader sees the old file or the new one, also after a crash of the
/// machine. Blocks until the bytes are on the disk.
///
/// One thread at a time may replace a file: the bytes are written to a name that has only the id of the process.
///
/// # Errors
/// [`ReplaceError`]; the old file stays then.
pub fn replace_file(path: &Path, bytes: &[u8], access: NewFileAccess<'_>) -> Result<(), ReplaceError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden, so that it is no policy while it is written.
    let fresh = path.with_file_name(format!(".{name}.{}.saving", std::process::id()));
    // Left over by a process of the same id that was killed.
    let _ = fs::remove_file(&fresh);
    let written =
        write(&fresh, bytes, access).and_then(|()| fs::rename(&fresh, path).map_err(failed("replace", path)));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written?;
    let folder = folder_of(path);
    // Without it, a crash of the machine may bring the old file back, which is a whole one too.
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    if let Err(error) = synced {
        let (folder, error) = (folder.display(), &error as &dyn std::error::Error);
        warn!(%folder, error, "failed to flush the folder of a replaced file");
    }
    Ok(())
}

/// Writes a new file.
fn write(fresh: &Path, bytes: &[u8], access: NewFileAccess<'_>) -> Result<(), ReplaceError> {
    let mut options = OpenOptions::new();
    // It may hold secrets: no other user reads it before it has its mode. `create_new` follows no link.
    let file = options.write(true).create_new(true).mode(0o600).open(fresh);
    let mut file = file.map_err(failed("create", fresh))?;
    let permissions = match access {
        NewFileAccess::Mode(mode) => Permissions::from_mode(mode),
        NewFileAccess::Of(before) => {
            let own = file.metadata().map_err(failed("look at", fresh))?;
            if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
                let owned = fchown(&file, Some(before.uid()), Some(before.gid()));
                owned.map_err(failed("keep the owner of", fresh))?;
            }
            before.permissions()
        }
    };
    let written = file
        .write_all(bytes)
        .and_then(|()| file.set_permissions(permissions))
        .and_then(|()| file.sync_all());
    written.map_err(failed("write", fresh))
}

/// Returns the folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Returns the error of a step.
pub(crate) fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ReplaceError {
    let path = path.to_owned();
    move |source| ReplaceError { step, path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const PRIVATE: NewFileAccess<'_> = NewFileAccess::Mode(0o600);

    #[test]
    fn a_file_is_made_with_its_mode_and_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (bytes, mode) in [("first", 0o640), ("2nd", 0o600)] {
            replace_file(&path, bytes.as_bytes(), NewFileAccess::Mode(mode)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), bytes);
            let found = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_new_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("file"), folder.path().join("victim"));
        fs::write(&victim, "kept").unwrap();
        let fresh = format!(".file.{}.saving", std::process::id());
        symlink(&victim, folder.path().join(fresh)).unwrap();
        replace_file(&path, b"new", PRIVATE).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_replacement_that_fails_leaves_the_old_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        let error = replace_file(&path, b"new", PRIVATE).unwrap_err();
        assert_eq!(error.step, "replace");
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
