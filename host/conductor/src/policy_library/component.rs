//! A component's bytes, and what the file system says about them without reading.

use std::borrow::Cow;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use super::{PolicyProblem, PolicySource};
use crate::builtin;

/// Larger files are not components of policies (the largest real one, Python's, has 18 MB).
pub(crate) const MAX_COMPONENT: u64 = 64 << 20;
/// A file younger than this may still be being written.
const SETTLING: Duration = Duration::from_millis(500);

/// SHA-256.
pub(super) type Digest = [u8; 32];

/// What tells, without reading it, that a source is as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
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
pub(super) fn look(source: &PolicySource) -> Option<Seen> {
    match source {
        PolicySource::Builtin(_) => Some(Seen::Builtin),
        PolicySource::File(path) => {
            let metadata = fs::metadata(path).ok()?;
            Some(Seen::File {
                place: (metadata.dev(), metadata.ino()),
                size: metadata.len(),
                written: metadata.modified().ok()?,
            })
        }
    }
}

/// The bytes of a component.
pub(super) struct Component {
    pub(super) bytes: Cow<'static, [u8]>,
    /// It may still be being written.
    pub(super) settling: bool,
}

impl Component {
    pub(super) fn digest(&self) -> Digest {
        Sha256::digest(&self.bytes).into()
    }
}

pub(super) fn read(source: &PolicySource) -> Result<Component, PolicyProblem> {
    match source {
        PolicySource::Builtin(name) => {
            let builtin = builtin::find(name).ok_or_else(|| PolicyProblem::NoBuiltin(name.clone()))?;
            Ok(Component {
                bytes: Cow::Borrowed(builtin.bytes),
                settling: false,
            })
        }
        PolicySource::File(path) => read_file(path),
    }
}

fn read_file(path: &Path) -> Result<Component, PolicyProblem> {
    let failed = |source| PolicyProblem::Read {
        path: path.to_owned(),
        source,
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.len() > MAX_COMPONENT {
        return Err(PolicyProblem::TooLarge {
            path: path.to_owned(),
            size: metadata.len(),
        });
    }
    Ok(Component {
        bytes: Cow::Owned(fs::read(path).map_err(failed)?),
        settling: age(&metadata).is_some_and(|age| age < SETTLING),
    })
}

fn age(metadata: &Metadata) -> Option<Duration> {
    metadata.modified().ok()?.elapsed().ok()
}

/// The `*.wasm` files of the policy folder by file stem, sorted. A folder that cannot be read holds none.
#[must_use]
pub(crate) fn policies_in(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut found: Vec<_> = files_in(folder, "wasm")
        .filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path)))
        // Editors and `cp` leave hidden files beside the one being written.
        .filter(|(name, _)| !name.starts_with('.'))
        .collect();
    found.sort();
    found
}

/// The `*.cwasm` files of the policy folder: machine code, which nobody vouches for.
pub(super) fn precompiled_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    files_in(folder, "cwasm")
}

fn files_in(folder: &Path, extension: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let paths = entries.map(|entry| entry.path());
    paths.filter(move |path| path.extension().is_some_and(|found| found == extension) && path.is_file())
}
