//! Files that somebody names: opened only where they are files. A pipe that nobody writes to would be waited for, and a device has no end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// What is advised of a file that a configuration names and that is no good.
pub(crate) const MEND_FILE: &str =
    "mend the file, or name the right one; a relative path starts at the folder of this file";

/// Opens a file to read it.
///
/// # Errors
/// Where the system refuses it, or it is something else.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Else opening a pipe is what would be waited for.
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

/// The bytes of a file that has no more than so many.
///
/// # Errors
/// As [`open`]; and where it has more.
pub(crate) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn what_is_no_file_is_refused_at_once() {
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
    fn a_file_is_read_whole_or_not_at_all() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "four").unwrap();
        assert_eq!(read_bounded(file.path(), 4).unwrap(), b"four");
        let refused = read_bounded(file.path(), 3).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }
}
