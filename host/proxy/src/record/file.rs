//! A file of lines that is put aside when it is full, so that all of them together stay within bounds.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

/// Readable by its owner only: ids and keys of sessions are in it.
const MODE: u32 = 0o600;
/// How every log begins.
const BEGINNING: &[u8; 8] = b"{\"log\":{";
/// How often is looked whether the file is still where it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where records are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// The file that is written.
    pub path: PathBuf,
    /// Once it has so many bytes it is put aside as `PATH.1`, after the one there became `PATH.2`, and so on.
    pub max_bytes: u64,
    /// How many of those are kept.
    pub keep: u32,
}

/// The file being written.
#[derive(Debug)]
pub(super) struct LogFile {
    spec: FileSpec,
    file: File,
    written: u64,
    looked: Instant,
}

impl LogFile {
    /// Opens the file to append to it; a full one is put aside first.
    pub(super) fn open(spec: FileSpec) -> io::Result<Self> {
        let mut file = open_log(&spec.path)?;
        if file.metadata()?.len() >= spec.max_bytes {
            put_aside(&spec)?;
            file = open_log(&spec.path)?;
        }
        let written = end_line(&mut file)?;
        Ok(Self {
            spec,
            file,
            written,
            looked: Instant::now(),
        })
    }

    /// Whether it has all it may, with so many bytes more.
    pub(super) fn is_full_with(&self, more: usize) -> bool {
        self.written.saturating_add(more as u64) >= self.spec.max_bytes
    }

    /// Appends lines, each with its end.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)?;
        self.written += lines.len() as u64;
        Ok(())
    }

    /// Whether another program has moved it away, or cut it short, as logrotate does. Looks once a second.
    pub(super) fn is_gone(&mut self) -> bool {
        if self.looked.elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked = Instant::now();
        !self.is_there()
    }

    /// Whether the path still leads to it, as it was written. Where that cannot be told it does.
    fn is_there(&self) -> bool {
        let (here, there) = (self.file.metadata(), fs::metadata(&self.spec.path));
        match (here, there) {
            (Ok(here), Ok(there)) => {
                here.dev() == there.dev() && here.ino() == there.ino() && here.len() >= self.written
            }
            (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
            (Err(_), _) => true,
        }
    }

    /// Puts it aside, where nobody has done so, and begins a new one.
    pub(super) fn turn(self) -> io::Result<Self> {
        if self.is_there() {
            put_aside(&self.spec)?;
        }
        Self::open(self.spec)
    }
}

/// Opens a decision log, or makes one. Whatever else lies there is left as it is.
fn open_log(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .append(true)
        .create(true)
        .mode(MODE)
        // A pipe that nobody reads would be waited for.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ));
    }
    if found.len() == 0 {
        file.set_permissions(Permissions::from_mode(MODE))?;
        return Ok(file);
    }
    let mut start = [0; BEGINNING.len()];
    match file.read_exact(&mut start) {
        Ok(()) if start == *BEGINNING => Ok(file),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it has something in it that is no decision log; name another file, or move it away",
        )),
    }
}

/// How many bytes there are, after a line that was cut short has been ended.
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

fn put_aside(spec: &FileSpec) -> io::Result<()> {
    if spec.keep == 0 {
        return fs::remove_file(&spec.path);
    }
    for number in (1..spec.keep).rev() {
        match fs::rename(aside(&spec.path, number), aside(&spec.path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(&spec.path, aside(&spec.path, 1))
}

fn aside(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
impl LogFile {
    /// A file that refuses whatever is written.
    pub(super) fn refusing(spec: FileSpec) -> io::Result<Self> {
        let mut log = Self::open(spec)?;
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
        let mut log = LogFile::open(spec).unwrap();
        log.append(LINE).unwrap();
        log
    }

    /// A look that is due finds it gone, or not.
    fn check(log: &mut LogFile, is_gone: bool) {
        assert!(!log.is_gone(), "it was looked a moment ago");
        log.looked = log.looked.checked_sub(LOOK_EVERY).unwrap();
        assert_eq!(log.is_gone(), is_gone);
    }

    #[test]
    fn a_file_that_another_program_moves_replaces_or_cuts_is_gone() {
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
        fs::write(&log.spec.path, "").unwrap();
        check(&mut log, true);
    }

    #[test]
    fn what_lies_in_place_of_a_full_file_is_not_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path());
        let path = log.spec.path.clone();
        fs::rename(&path, folder.path().join("moved")).unwrap();
        fs::write(&path, LINE).unwrap();
        assert_eq!(log.turn().unwrap().written, LINE.len() as u64);
        assert!(!aside(&path, 1).exists());
    }
}
