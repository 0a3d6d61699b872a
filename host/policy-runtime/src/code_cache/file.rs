//! Cache file: opened without races, and checked before it is read.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, fstat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::rejection::CacheRejection;

/// Reads a file that only this user may have written; `None` if it does not exist. `closed_to` are the permissions
/// that other users must not have, `most` is its greatest length.
pub(super) fn read(
    folder: &OwnedFd,
    name: &str,
    closed_to: Mode,
    most: u64,
) -> Result<Option<Vec<u8>>, CacheRejection> {
    // Non-blocking: the file may be a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(CacheRejection::Link),
        Err(Errno::NXIO) => return Err(CacheRejection::NotAFile),
        Err(error) => return Err(CacheRejection::Unreadable(error.into())),
    };
    check(&file, closed_to)?;
    let mut bytes = Vec::new();
    let read = File::from(file).take(most + 1).read_to_end(&mut bytes);
    let length = read.map_err(CacheRejection::Unreadable)? as u64;
    if length > most {
        return Err(CacheRejection::TooLong { most });
    }
    Ok(Some(bytes))
}

/// Checks that the opened file belongs to this user alone.
fn check(file: &OwnedFd, closed_to: Mode) -> Result<(), CacheRejection> {
    let found = fstat(file).map_err(|error| CacheRejection::Unreadable(error.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(CacheRejection::NotAFile);
    }
    if found.st_uid != geteuid().as_raw() {
        return Err(CacheRejection::Owner { owner: found.st_uid });
    }
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.intersects(closed_to) {
        return Err(CacheRejection::Mode {
            mode: mode.as_raw_mode(),
        });
    }
    // Its type differs between systems.
    #[allow(clippy::useless_conversion, reason = "no conversion on some systems")]
    match u64::from(found.st_nlink) {
        1 => Ok(()),
        links => Err(CacheRejection::Links { links }),
    }
}

/// Handling of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExistingFile {
    /// The new file replaces it.
    Replaced,
    /// The existing file stays, and the new file is dropped.
    Stays,
}

/// Writes a file atomically.
pub(super) fn write(folder: &OwnedFd, name: &str, parts: &[&[u8]], existing: ExistingFile) -> io::Result<()> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let fresh = format!("{}-{number}.writing", process::id());
    let write = || -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(folder, &fresh, flags, Mode::RUSR | Mode::WUSR)?);
        for part in parts {
            file.write_all(part)?;
        }
        match existing {
            ExistingFile::Replaced => renameat(folder, &fresh, folder, name)?,
            ExistingFile::Stays => {
                match renameat_with(folder, &fresh, folder, name, RenameFlags::NOREPLACE) {
                    // Some network file systems do not support it: the later writer's file stays there.
                    Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                        renameat(folder, &fresh, folder, name)?
                    }
                    renamed => renamed?,
                }
            }
        }
        Ok(())
    };
    let written = write();
    if written.is_err() {
        // An incomplete file has a name that is never read.
        let _ = unlinkat(folder, &fresh, AtFlags::empty());
    }
    match written {
        Err(error) if existing == ExistingFile::Stays && error.kind() == io::ErrorKind::AlreadyExists => {
            Ok(())
        }
        written => written,
    }
}

/// Removes an untrusted file or empty folder.
pub(super) fn remove(folder: &OwnedFd, name: &str) {
    // A file that cannot be removed is not run either: its checks fail the next time as well.
    if unlinkat(folder, name, AtFlags::empty()).is_err() {
        let _ = unlinkat(folder, name, AtFlags::REMOVEDIR);
    }
}
