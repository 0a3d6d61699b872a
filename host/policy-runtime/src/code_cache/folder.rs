//! Cache folder: owned by the router's user, and closed to others.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fchmod, fstat, open, statat, unlinkat};
use rustix::process::geteuid;

use super::key::KEY;
use super::{CodeCacheError, HASH};

/// Most files that are kept, the newest ones.
const KEPT: usize = 32;

/// Opens the folder. If it was open to others, it is emptied and closed, and its former mode returned.
pub(super) fn enter(path: &Path) -> Result<(OwnedFd, Option<u32>), CodeCacheError> {
    let failed = |source: io::Error| CodeCacheError::Folder {
        path: path.to_owned(),
        source,
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let found = fstat(&folder).map_err(|error| failed(error.into()))?;
    let mode = Mode::from_raw_mode(found.st_mode);
    let not_ours = || CodeCacheError::NotOurs {
        path: path.to_owned(),
        owner: found.st_uid,
        mode: mode.as_raw_mode(),
    };
    if found.st_uid != geteuid().as_raw() {
        return Err(not_ours());
    }
    if !mode.intersects(Mode::RWXG | Mode::RWXO) {
        return Ok((folder, None));
    }
    // A folder with other files is not the cache's to close.
    if names(&folder).map_err(failed)?.iter().any(|name| !is_ours(name)) {
        return Err(not_ours());
    }
    // Closed first: from now on other users cannot add files.
    fchmod(&folder, Mode::RWXU).map_err(|error| failed(error.into()))?;
    clear(&folder).map_err(failed)?;
    Ok((folder, Some(mode.as_raw_mode())))
}

/// Removes all files of the cache.
pub(super) fn clear(folder: &OwnedFd) -> io::Result<()> {
    for name in names(folder)?.iter().filter(|name| is_ours(name)) {
        unlinkat(folder, name, AtFlags::empty())?;
    }
    Ok(())
}

/// Removes all but the newest code files.
pub(super) fn prune(folder: &OwnedFd) -> io::Result<()> {
    let mut files = Vec::new();
    for name in names(folder)? {
        let found = statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_code = name.to_str().is_ok_and(is_code);
        if is_code && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            files.push(((found.st_mtime, found.st_mtime_nsec), name));
        }
    }
    files.sort_unstable_by(|a, b| b.cmp(a));
    for (_, name) in files.into_iter().skip(KEPT) {
        unlinkat(folder, name, AtFlags::empty())?;
    }
    Ok(())
}

fn names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

fn is_ours(name: &CString) -> bool {
    name.to_str().is_ok_and(|name| name == KEY || is_code(name))
}

/// Returns `true` for names of code files and unfinished files.
fn is_code(file: &str) -> bool {
    let hash =
        |text: &str, digits: usize| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = |ending: &str| file.strip_suffix(ending).and_then(|name| name.split_once('-'));
    parts(".code").is_some_and(|(bytes, engine)| hash(bytes, 2 * HASH) && hash(engine, 16))
        || parts(".writing").is_some_and(|(process, count)| number(process) && number(count))
}
