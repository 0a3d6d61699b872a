//! A component's bytes, and what the file system says about them without reading.

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

/// Larger files are not components of policies (the largest real one, Python's, has 18 MB).
pub const MAX_COMPONENT: u64 = 64 << 20;
/// A file younger than this may still be being written.
const SETTLING: Duration = Duration::from_millis(500);

/// SHA-256.
pub(super) type Digest = [u8; 32];

/// What tells, without reading it, that a source is as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SourceStamp {
    /// Never changes.
    Builtin,
    /// Where the bytes lie, how many there are, and when they were written.
    File {
        place: (u64, u64),
        size: u64,
        written: SystemTime,
    },
}

/// A look at a source; none where there is nothing to see.
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

/// The bytes of a component.
pub(super) struct ComponentBytes {
    pub(super) bytes: Cow<'static, [u8]>,
    /// It may still be being written.
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
