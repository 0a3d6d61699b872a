//! Bytes of a component, and the stamp of its file.

use std::borrow::Cow;
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use local_files::regular_file;
use sha2::{Digest as _, Sha256};

use super::{PolicyProblem, PolicySource};
use crate::builtin;

/// Size limit of a component, in bytes. The largest real one, Python's, has 18 MB.
pub const MAX_COMPONENT: u64 = 64 << 20;
/// Age below which a file may be half-written.
const SETTLING: Duration = Duration::from_millis(500);

/// SHA-256.
pub(super) type Digest = [u8; 32];

/// Stamp of a source, which changes with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SourceStamp {
    /// Built-in bytes: they never change.
    Builtin,
    /// Inode, size and modification time of a file.
    File {
        place: (u64, u64),
        size: u64,
        written: SystemTime,
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
    let mut file = regular_file::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.len() > MAX_COMPONENT {
        return Err(PolicyProblem::TooLarge {
            path: path.to_owned(),
            size: metadata.len(),
        });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(ComponentBytes {
        bytes: Cow::Owned(bytes),
        settling: age(&metadata).is_some_and(|age| age < SETTLING),
    })
}

fn age(metadata: &Metadata) -> Option<Duration> {
    metadata.modified().ok()?.elapsed().ok()
}
