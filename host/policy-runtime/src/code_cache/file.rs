//! One file of the cache: opened so that nothing can be swapped in between, and looked at before it is read.

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

use super::rejection::Rejection;

/// Reads a file that only this user may have written; none where it is not there. `closed_to` are the permissions that nobody else
/// may have.
pub(super) fn read(
    folder: &OwnedFd,
    name: &str,
    (closed_to, most): (Mode, u64),
) -> Result<Option<Vec<u8>>, Rejection> {
    // Without waiting: what is there may be a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(Rejection::Link),
        Err(Errno::NXIO) => return Err(Rejection::NotAFile),
        Err(error) => return Err(Rejection::Unreadable(error.into())),
    };
    check(&file, closed_to)?;
    let mut bytes = Vec::new();
    let read = File::from(file).take(most + 1).read_to_end(&mut bytes);
    let length = read.map_err(Rejection::Unreadable)? as u64;
    if length > most {
        return Err(Rejection::TooLong { most });
    }
    Ok(Some(bytes))
}

/// Whether the file that was opened is ours alone.
fn check(file: &OwnedFd, closed_to: Mode) -> Result<(), Rejection> {
    let found = fstat(file).map_err(|error| Rejection::Unreadable(error.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(Rejection::NotAFile);
    }
    if found.st_uid != geteuid().as_raw() {
        return Err(Rejection::Owner { owner: found.st_uid });
    }
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.intersects(closed_to) {
        return Err(Rejection::Mode {
            mode: mode.as_raw_mode(),
        });
    }
    // Its type differs between systems.
    #[allow(clippy::useless_conversion, reason = "no conversion on some systems")]
    match u64::from(found.st_nlink) {
        1 => Ok(()),
        links => Err(Rejection::Links { links }),
    }
}

/// What becomes of a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    /// The new one takes its place.
    Replaced,
    /// It stays, and the new one is dropped.
    Stays,
}

/// Writes a file whole or not at all.
pub(super) fn write(folder: &OwnedFd, name: &str, parts: &[&[u8]], existing: Existing) -> io::Result<()> {
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
            Existing::Replaced => renameat(folder, &fresh, folder, name)?,
            Existing::Stays => match renameat_with(folder, &fresh, folder, name, RenameFlags::NOREPLACE) {
                // Some file systems of networks do not know it: the later writer's file stays there.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => renameat(folder, &fresh, folder, name)?,
                renamed => renamed?,
            },
        }
        Ok(())
    };
    let written = write();
    if written.is_err() {
        // What is half-written has no name that is read.
        let _ = unlinkat(folder, &fresh, AtFlags::empty());
    }
    match written {
        Err(error) if existing == Existing::Stays && error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

/// Removes what is not trusted, be it an empty folder.
pub(super) fn remove(folder: &OwnedFd, name: &str) {
    // What cannot be removed is not run either: its checks fail the next time as well.
    if unlinkat(folder, name, AtFlags::empty()).is_err() {
        let _ = unlinkat(folder, name, AtFlags::REMOVEDIR);
    }
}
