//! Component that a tool works on: the bytes of a file, or of a built-in policy.

use std::borrow::Cow;
use std::fs::Metadata;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use observability::error_chain;
use policy_component::{Anatomy, dissect};
use routing::hex;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use local_files::{NewFileAccess, ReplaceError, regular_file, replace_file};
use policy_store::MAX_COMPONENT;
use policy_store::builtin;

/// Replaces a component as a whole, or creates it. It keeps mode and owner of the file that it replaces, if the user
/// may give files away.
///
/// # Errors
/// [`ReplaceError`]. The former file stays then.
pub(super) fn replace_component(
    path: &Path,
    bytes: &[u8],
    replaced: Option<&Metadata>,
) -> Result<(), ReplaceError> {
    // The router must be able to read it, also where it belongs to another user.
    let new = || replace_file(path, bytes, NewFileAccess::Mode(0o644));
    match replaced {
        Some(replaced) => replace_file(path, bytes, NewFileAccess::Of(replaced)).or_else(|_| new()),
        None => new(),
    }
}

/// A policy's bytes and where they come from.
#[derive(Debug)]
pub(crate) struct ComponentFile {
    /// Label for messages: the path, or `builtin NAME`.
    pub(crate) label: String,
    /// The built-in's name, or the file's without its ending.
    pub(crate) name: String,
    /// The bytes.
    pub(crate) bytes: Cow<'static, [u8]>,
}

/// Failure to read a component.
#[derive(Debug, Error)]
pub(crate) enum ComponentFileError {
    /// No such thing.
    #[error(
        "failed to find `{requested}`: it is neither a file nor a built-in policy (those are {})",
        builtin::names().join(", ")
    )]
    Nowhere {
        /// Requested name.
        requested: String,
    },
    /// The file cannot be read.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// No policy is that large.
    #[error("failed to read `{}`: it has {bytes} bytes, and the router loads none over {MAX_COMPONENT}", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Length.
        bytes: u64,
    },
}

impl ComponentFile {
    /// Returns the built-in policy of that current or former name, else the file. A file with the name of a built-in
    /// needs a path, such as `./NAME`.
    pub(crate) fn find(requested: &Path) -> Result<Self, ComponentFileError> {
        if let Some(builtin) = requested.to_str().and_then(builtin::find) {
            return Ok(Self::of(builtin));
        }
        if let Some(former) = requested.to_str()
            && let Some(builtin) = builtin::find(builtin::current_name(former))
        {
            eprintln!("warning: `{former}` is now called `{}`", builtin.name);
            return Ok(Self::of(builtin));
        }
        if requested.exists() {
            return Self::read(requested);
        }
        Err(ComponentFileError::Nowhere {
            requested: requested.display().to_string(),
        })
    }

    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, ComponentFileError> {
        let failed = |source| ComponentFileError::Read {
            path: path.to_owned(),
            source,
        };
        let file = regular_file::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut bytes = Vec::new();
        // The file may grow meanwhile.
        file.take(MAX_COMPONENT + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        if bytes.len() as u64 > MAX_COMPONENT {
            return Err(ComponentFileError::TooLarge {
                path: path.to_owned(),
                bytes: size.max(bytes.len() as u64),
            });
        }
        let name = path.file_stem().unwrap_or_default();
        Ok(Self {
            label: path.display().to_string(),
            name: name.to_string_lossy().into_owned(),
            bytes: bytes.into(),
        })
    }

    /// Returns a built-in policy.
    pub(crate) fn of(builtin: &builtin::Builtin) -> Self {
        Self {
            label: format!("builtin {}", builtin.name),
            name: builtin.name.to_owned(),
            bytes: builtin.bytes.into(),
        }
    }

    /// Returns the structure of the bytes.
    pub(crate) fn dissect(&self) -> anyhow::Result<Anatomy> {
        let anatomy = dissect(&self.bytes);
        anatomy.map_err(|error| anyhow!("{}: failed to {}", self.label, error_chain(&error)))
    }

    /// Returns the SHA-256 of the bytes, in hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        hex(&Sha256::digest(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_builtin_is_found_by_its_name_and_a_file_named_like_it_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("round-robin");
        std::fs::write(&file, "mine").unwrap();
        assert_eq!(ComponentFile::find(&file).unwrap().bytes, b"mine".as_slice());
        let builtin = ComponentFile::find(Path::new("round-robin")).unwrap();
        assert_eq!(builtin.label, "builtin round-robin");
        // In the repository's folder `policies` every builtin has a folder of its name.
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/round-robin");
        assert!(matches!(
            ComponentFile::find(&here),
            Err(ComponentFileError::Read { .. })
        ));
        let former = ComponentFile::find(Path::new("conductor")).unwrap();
        assert_eq!(former.label, "builtin ttft-queue");
        assert!(matches!(
            ComponentFile::find(Path::new("nowhere")),
            Err(ComponentFileError::Nowhere { .. })
        ));
    }
}
