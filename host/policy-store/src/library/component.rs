//! Bytes of a component, and the stamp of its file.

use std::borrow::Cow;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use local_files::regular_file;
use sha2::{Digest as _, Sha256};

use super::digest::{Digest, MAX_COMPONENT};
use super::{PolicyProblem, PolicySource};
use crate::builtin;

/// Age below which a file may be half-written.
const SETTLING: Duration = Duration::from_millis(500);

/// Stamp of a source, which changes with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SourceStamp {
    /// Built-in bytes: they never change.
    Builtin,
    /// Inode, size and times of a file.
    File {
        place: (u64, u64),
        size: u64,
        written: SystemTime,
        /// Time of the last change of content or metadata, in seconds and nanoseconds: no user sets it. Copies that
        /// keep modification times may put other bytes of equal size and time into the file.
        changed: (i64, i64),
    },
}

/// Returns the stamp of a source, if it exists.
pub(super) fn look(source: &PolicySource) -> Option<SourceStamp> {
    match source {
        PolicySource::Builtin(_) => Some(SourceStamp::Builtin),
        PolicySource::File(path) => {
            let metadata = fs::metadata(path).ok()?;
            Some(SourceStamp::File {
                place: (metadata.dev(), metadata.ino()),
                size: metadata.len(),
                written: metadata.modified().ok()?,
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            })
        }
    }
}

/// Bytes of a component.
pub(super) struct ComponentBytes {
    pub(super) bytes: Cow<'static, [u8]>,
    /// True if the file may be half-written.
    pub(super) settling: bool,
}

impl ComponentBytes {
    pub(super) fn digest(&self) -> Digest {
        Sha256::digest(&self.bytes).into()
    }
}

pub(super) fn read(source: &PolicySource) -> Result<ComponentBytes, PolicyProblem> {
    match source {
        PolicySource::Builtin(name) => {
            let builtin = builtin::find(name).ok_or_else(|| PolicyProblem::NoBuiltin(name.clone()))?;
            Ok(ComponentBytes {
                bytes: Cow::Borrowed(builtin.bytes),
                settling: false,
            })
        }
        PolicySource::File(path) => read_file(path),
    }
}

/// Returns the bytes of a component with their SHA-256, in hexadecimal digits.
///
/// # Errors
/// [`PolicyProblem`] if they cannot be read.
pub fn component_bytes(source: &PolicySource) -> Result<(String, Vec<u8>), PolicyProblem> {
    let component = read(source)?;
    Ok((routing::hex(&component.digest()), component.bytes.into_owned()))
}

/// Returns the bytes of the built-in policy with this hash.
pub(super) fn builtin_bytes(digest: &Digest) -> Option<Vec<u8>> {
    let mut all = builtin::BUILTINS.iter();
    let found = all.find(|builtin| <Digest>::from(Sha256::digest(builtin.bytes)) == *digest)?;
    Some(found.bytes.to_vec())
}

fn read_file(path: &Path) -> Result<ComponentBytes, PolicyProblem> {
    let failed = |source| PolicyProblem::Read {
        path: path.to_owned(),
        source,
    };
    let file = regular_file::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let too_large = |size| PolicyProblem::TooLarge {
        path: path.to_owned(),
        size,
    };
    if metadata.len() > MAX_COMPONENT {
        return Err(too_large(metadata.len()));
    }
    let bytes = read_to_limit(file).map_err(failed)?;
    if bytes.len() as u64 > MAX_COMPONENT {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(ComponentBytes {
        bytes: Cow::Owned(bytes),
        settling: age(&metadata).is_some_and(|age| age < SETTLING),
    })
}

/// Reads a file up to one byte more than the limit. Its size may have been checked before, but it may grow meanwhile.
fn read_to_limit(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_COMPONENT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn age(metadata: &Metadata) -> Option<Duration> {
    metadata.modified().ok()?.elapsed().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_in_place_of_equal_size_and_time_change_the_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.wasm");
        let source = PolicySource::File(path.clone());
        let stamps = ["one", "two"].map(|bytes| {
            fs::write(&path, bytes).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            let stamp = look(&source).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            stamp
        });
        assert_ne!(stamps[0], stamps[1]);
    }

    #[test]
    fn a_component_that_grows_meanwhile_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.wasm");
        fs::write(&path, "small").unwrap();
        let opened = regular_file::open(&path).unwrap();
        let growing = File::options().write(true).open(&path).unwrap();
        growing.set_len(MAX_COMPONENT + 4096).unwrap();
        let bytes = read_to_limit(opened).unwrap();
        assert_eq!(bytes.len() as u64, MAX_COMPONENT + 1);
        let refused = read_file(&path);
        assert!(matches!(refused, Err(PolicyProblem::TooLarge { .. })));
    }
}
