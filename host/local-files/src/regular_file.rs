//! Files by name, opened only if they are regular: a pipe without a writer would block, and a device has no end.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use tracing::warn;

/// Help text for an unusable file that a configuration names.
pub const MEND_FILE: &str =
    "correct the file, or name the right one; a relative path starts at the folder of this file";

/// Opens a file for reading.
///
/// # Errors
/// An error of the system, or [`io::ErrorKind::InvalidInput`] if it is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Without this flag, opening a pipe blocks.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        )),
    }
}

/// Reads a whole file of at most `most` bytes.
///
/// # Errors
/// As for [`open`], or [`io::ErrorKind::FileTooLarge`].
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Logs a warning if other users of the machine can read or change a file with a secret: once until its mode changes.
///
/// The owner's group may: mounted secrets have such modes.
pub fn warn_of_readers(path: &Path, what: &str) {
    static WARNED: Mutex<WarnedModes> = Mutex::new(WarnedModes(BTreeMap::new()));
    // An unreadable file is an error elsewhere.
    let Ok(mode) = std::fs::metadata(path).map(|file| file.permissions().mode()) else {
        return;
    };
    let exposed = WARNED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .newly_exposed(path, mode);
    if let Some(access) = exposed {
        warn!(
            file = %path.display(),
            mode = %format_args!("{:04o}", mode & 0o7777),
            "every user of this machine can {access} the file of {what}: remove the permissions of others (chmod o-rwx)"
        );
    }
}

/// Most files whose warnings are remembered. Beyond it, some are repeated.
const MOST_WARNED: usize = 1024;

/// Modes of the files that the log warned of.
#[derive(Debug)]
struct WarnedModes(BTreeMap<PathBuf, u32>);

impl WarnedModes {
    /// Returns the access of other users to a file, if the log has not warned of it with this mode.
    fn newly_exposed(&mut self, path: &Path, mode: u32) -> Option<&'static str> {
        let Some(access) = access_of_others(mode) else {
            self.0.remove(path);
            return None;
        };
        if self.0.get(path) == Some(&mode) {
            return None;
        }
        if self.0.len() >= MOST_WARNED {
            self.0.clear();
        }
        self.0.insert(path.to_owned(), mode);
        Some(access)
    }
}

/// Returns the access of users who are neither the owner nor in the group.
fn access_of_others(mode: u32) -> Option<&'static str> {
    match (mode & 0o004 != 0, mode & 0o002 != 0) {
        (true, true) => Some("read and change"),
        (true, false) => Some("read"),
        (false, true) => Some("change"),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn pipes_folders_and_devices_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [&pipe, folder.path(), Path::new("/dev/zero")] {
            let refused = open(path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(open(&file).is_ok());
    }

    #[test]
    fn a_secret_is_exposed_if_users_outside_its_group_may_read_or_change_it() {
        for (mode, access) in [
            (0o100_600, None),
            (0o100_640, None),
            (0o100_644, Some("read")),
            (0o100_602, Some("change")),
            (0o100_666, Some("read and change")),
        ] {
            assert_eq!(access_of_others(mode), access, "{mode:o}");
        }
    }

    #[test]
    fn an_exposed_file_is_warned_of_once_until_its_mode_changes() {
        let mut warned = WarnedModes(BTreeMap::new());
        let (first, second) = (Path::new("first"), Path::new("second"));
        assert_eq!(warned.newly_exposed(first, 0o644), Some("read"));
        assert_eq!(warned.newly_exposed(second, 0o644), Some("read"));
        for _ in 0..3 {
            assert_eq!(warned.newly_exposed(first, 0o644), None);
        }
        assert_eq!(warned.newly_exposed(first, 0o666), Some("read and change"));
        assert_eq!(warned.newly_exposed(first, 0o600), None);
        assert_eq!(warned.newly_exposed(first, 0o666), Some("read and change"));
        assert_eq!(warned.newly_exposed(second, 0o644), None);
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "four").unwrap();
        assert_eq!(read_bounded(file.path(), 4).unwrap(), b"four");
        let refused = read_bounded(file.path(), 3).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }
}
