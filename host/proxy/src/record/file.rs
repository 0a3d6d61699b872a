//! A file of lines that is put aside when it is full, so that all of them together stay within bounds.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Readable by its owner only: ids and keys of sessions are in it.
const MODE: u32 = 0o600;
/// How every log begins.
const BEGINNING: &[u8; 8] = b"{\"log\":{";
/// Written at once.
const CHUNK: usize = 64 << 10;

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
    file: BufWriter<File>,
    written: u64,
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
            file: BufWriter::with_capacity(CHUNK, file),
            written,
        })
    }

    /// Whether it has all it may.
    pub(super) fn is_full(&self) -> bool {
        self.written >= self.spec.max_bytes
    }

    /// Appends lines, each with its end.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)?;
        self.written += lines.len() as u64;
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Puts it aside and begins a new one.
    pub(super) fn turn(mut self) -> io::Result<Self> {
        self.file.flush()?;
        put_aside(&self.spec)?;
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
