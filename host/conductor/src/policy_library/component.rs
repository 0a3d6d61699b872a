//! A component's bytes, and what the file system says about them without reading.

use std::borrow::Cow;
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use conductor_config::check_policy_name;
use sha2::{Digest as _, Sha256};

use super::{PolicyProblem, PolicySource};
use crate::builtin;
use crate::regular_file;

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
    Ok(Component {
        bytes: Cow::Owned(bytes),
        settling: age(&metadata).is_some_and(|age| age < SETTLING),
    })
}

fn age(metadata: &Metadata) -> Option<Duration> {
    metadata.modified().ok()?.elapsed().ok()
}

/// The `*.wasm` files of the policy folder by file stem, sorted, but for those whose stem can name no policy. A folder that cannot be
/// read holds none.
#[must_use]
pub(crate) fn policies_in(folder: &Path) -> Vec<(String, PathBuf)> {
    let components = components_in(folder);
    let mut found: Vec<_> = components
        .filter_map(|path| Some((named(&path)?, path)))
        .collect();
    found.sort();
    found
}

/// The other ones: no configuration can name them, and some would be taken for the router's own.
pub(crate) fn misnamed_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    components_in(folder).filter(|path| named(path).is_none())
}

/// The name of the policy that a file is, where it can be one's.
fn named(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    check_policy_name(stem).ok()?;
    Some(stem.to_owned())
}

/// Editors and `cp` leave hidden files beside the one being written: those are nobody's.
fn components_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let is_hidden = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_bytes().starts_with(b"."))
    };
    files_in(folder, "wasm").filter(move |path| !is_hidden(path))
}

/// Links that are followed to a file, as the system does at most.
const MOST_LINKS: usize = 40;

/// Whether a file is one of the folder's, however it is named: by another path, or by links of which one lies there. Whoever may write to
/// the folder says what it is, then.
pub(crate) fn is_of_folder(path: &Path, folder: &Path) -> bool {
    let real = |folder: &Path| fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let folder = real(folder);
    let parent = |path: &Path| path.parent().map(real);
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if parent(&path).as_ref() == Some(&folder) {
            return true;
        }
        match (fs::read_link(&path), path.parent()) {
            (Ok(link), Some(at)) => path = at.join(link),
            _ => return false,
        }
    }
    false
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_whose_stems_name_no_policy_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            "mine.wasm",
            "mine (shadow).wasm",
            "-x.wasm",
            "a b.wasm",
            ".mine.wasm.swp.wasm",
            "mine.txt",
        ];
        for file in files {
            fs::write(folder.path().join(file), "").unwrap();
        }
        let names: Vec<_> = policies_in(folder.path())
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["mine"]);
        let mut misnamed: Vec<_> = misnamed_in(folder.path()).collect();
        misnamed.sort();
        let expected = ["-x.wasm", "a b.wasm", "mine (shadow).wasm"];
        assert_eq!(misnamed, expected.map(|file| folder.path().join(file)));
    }

    #[test]
    fn a_file_of_the_folder_is_known_by_whatever_path_leads_to_it() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in ["policies", "elsewhere"] {
            fs::create_dir(at(folder)).unwrap();
        }
        fs::write(at("policies/mine.wasm"), "").unwrap();
        fs::write(at("elsewhere/other.wasm"), "").unwrap();
        for (link, to) in [
            ("also", "policies"),
            ("elsewhere/in.wasm", "../policies/mine.wasm"),
            ("policies/out.wasm", "../elsewhere/other.wasm"),
            ("elsewhere/through.wasm", "../policies/out.wasm"),
            ("elsewhere/round.wasm", "round.wasm"),
        ] {
            symlink(to, at(link)).unwrap();
        }
        for (path, expected) in [
            ("policies/mine.wasm", true),
            ("policies/../policies/./mine.wasm", true),
            ("also/mine.wasm", true),
            ("also/not-yet.wasm", true),
            ("elsewhere/in.wasm", true),
            ("policies/out.wasm", true),
            ("elsewhere/through.wasm", true),
            ("elsewhere/other.wasm", false),
            ("elsewhere/round.wasm", false),
            ("policies.wasm", false),
        ] {
            assert_eq!(is_of_folder(&at(path), &at("policies")), expected, "{path}");
            assert_eq!(is_of_folder(&at(path), &at("also/.")), expected, "{path}");
        }
    }
}
