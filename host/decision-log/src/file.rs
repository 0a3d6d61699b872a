//! Log file with size-based rotation and a bounded number of rotated files.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::kind::LogKind;

/// File mode: readable by the owner only, because the log contains request ids and session keys.
const MODE: u32 = 0o600;
/// Interval of the check for external rotation.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Path and rotation of a log file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// Path.
    pub path: PathBuf,
    /// Size at which it is renamed to `PATH.1`; an older `PATH.1` becomes `PATH.2`, and so on.
    pub max_bytes: u64,
    /// Number of rotated files to keep.
    pub keep: u32,
}

/// Open log file.
#[derive(Debug)]
pub(crate) struct LogFile {
    spec: FileSpec,
    kind: LogKind,
    file: File,
    written: u64,
    /// Length of the latest append.
    appended: u64,
    looked: Instant,
}

impl LogFile {
    /// Opens the file for appending. Rotates it first if it is full.
    pub(crate) fn open(spec: FileSpec, kind: LogKind) -> io::Result<Self> {
        let mut file = open_log(&spec.path, kind)?;
        if file.metadata()?.len() >= spec.max_bytes {
            rotate_files(&spec)?;
            file = open_log(&spec.path, kind)?;
        }
        let written = end_line(&mut file)?;
        Ok(Self {
            spec,
            kind,
            file,
            written,
            appended: 0,
            looked: Instant::now(),
        })
    }

    /// Returns whether `more` bytes fill it.
    pub(crate) fn is_full_with(&self, more: usize) -> bool {
        self.written.saturating_add(more as u64) >= self.spec.max_bytes
    }

    /// Appends complete lines.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)?;
        self.appended = lines.len() as u64;
        self.written += self.appended;
        Ok(())
    }

    /// Returns whether another program, such as logrotate, truncated it. Returns false if that cannot be determined.
    pub(crate) fn is_truncated(&self) -> bool {
        let found = self.file.metadata();
        found.is_ok_and(|found| found.len() < self.written)
    }

    /// Opens the file again after a truncation.
    pub(crate) fn restart(self) -> io::Result<Self> {
        // The latest lines may have followed the truncation at once. Then the file lacks its beginning.
        if self.kind == LogKind::Described && self.file.metadata()?.len() == self.appended {
            self.file.set_len(0)?;
        }
        Self::open(self.spec, self.kind)
    }

    /// Returns whether another program, such as logrotate, moved it. Checks once a second.
    pub(crate) fn is_gone(&mut self) -> bool {
        if self.looked.elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked = Instant::now();
        !self.is_there()
    }

    /// Returns whether the path still names this file, also if that cannot be determined.
    fn is_there(&self) -> bool {
        let (here, there) = (self.file.metadata(), fs::metadata(&self.spec.path));
        match (here, there) {
            (Ok(here), Ok(there)) => here.dev() == there.dev() && here.ino() == there.ino(),
            (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
            (Err(_), _) => true,
        }
    }

    /// Rotates the file, unless another program did, and opens a new one.
    pub(crate) fn rotate(self) -> io::Result<Self> {
        if self.is_there() {
            rotate_files(&self.spec)?;
        }
        Self::open(self.spec, self.kind)
    }
}

/// Opens or creates a log of that kind. Refuses any other file.
fn open_log(path: &Path, kind: LogKind) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .append(true)
        .create(true)
        .mode(MODE)
        // Opening a pipe without a reader would block.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    if found.len() == 0 {
        file.set_permissions(Permissions::from_mode(MODE))?;
        return Ok(file);
    }
    let beginning = kind.beginning();
    let mut start = [0; 8];
    let start = &mut start[..beginning.len()];
    match file.read_exact(start) {
        Ok(()) if start == beginning => Ok(file),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, kind.refusal())),
    }
}

/// Terminates an incomplete last line and returns the length.
fn end_line(file: &mut File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(0);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        return Ok(length);
    }
    file.write_all(b"\n")?;
    Ok(length + 1)
}

fn rotate_files(spec: &FileSpec) -> io::Result<()> {
    if spec.keep == 0 {
        return fs::remove_file(&spec.path);
    }
    for number in (1..spec.keep).rev() {
        match fs::rename(rotated(&spec.path, number), rotated(&spec.path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(&spec.path, rotated(&spec.path, 1))
}

fn rotated(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
impl LogFile {
    /// Opens a file that fails every write.
    pub(crate) fn refusing(spec: FileSpec) -> io::Result<Self> {
        let mut log = Self::open(spec, LogKind::Described)?;
        log.file = File::open(&log.spec.path)?;
        Ok(log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"{\"log\":{}}\n";

    fn log(folder: &Path) -> LogFile {
        let spec = FileSpec {
            path: folder.join("decisions.jsonl"),
            max_bytes: 100,
            keep: 2,
        };
        let mut log = LogFile::open(spec, LogKind::Described).unwrap();
        log.append(LINE).unwrap();
        log
    }

    /// Checks the result of a due check.
    fn check(log: &mut LogFile, is_gone: bool) {
        assert!(!log.is_gone(), "the last check was a moment ago");
        log.looked = log.looked.checked_sub(LOOK_EVERY).unwrap();
        assert_eq!(log.is_gone(), is_gone);
    }

    #[test]
    fn a_file_that_another_program_moved_or_replaced_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log(folder.path());
        check(&mut log, false);
        let moved = folder.path().join("moved");
        fs::rename(&log.spec.path, &moved).unwrap();
        check(&mut log, true);
        fs::write(&log.spec.path, LINE).unwrap();
        check(&mut log, true);
        fs::rename(&moved, &log.spec.path).unwrap();
        check(&mut log, false);
    }

    #[test]
    fn lines_that_followed_a_truncation_at_once_are_removed_and_lines_of_others_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log(folder.path());
        let path = log.spec.path.clone();
        assert!(!log.is_truncated());
        fs::write(&path, "").unwrap();
        log.append(b"{\"decision\":{}}\n").unwrap();
        assert!(log.is_truncated());
        let mut log = log.restart().unwrap();
        assert_eq!((log.written, fs::read(&path).unwrap().len()), (0, 0));
        log.append(&LINE.repeat(3)).unwrap();
        fs::write(&path, LINE).unwrap();
        assert!(log.is_truncated());
        assert_eq!(log.restart().unwrap().written, LINE.len() as u64);
        assert_eq!(fs::read(&path).unwrap(), LINE);
    }

    #[test]
    fn a_replacement_of_a_full_file_is_not_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path());
        let path = log.spec.path.clone();
        fs::rename(&path, folder.path().join("moved")).unwrap();
        fs::write(&path, LINE).unwrap();
        assert_eq!(log.rotate().unwrap().written, LINE.len() as u64);
        assert!(!rotated(&path, 1).exists());
    }
}
