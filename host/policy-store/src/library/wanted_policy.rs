//! Wanted policies, as the configuration or the policy folder names them, and the errors of files that are refused.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use policy_runtime::{LoadError, ParamFaults, PolicySettings};
use routing::{CircuitSpec, hex};
use thiserror::Error;

use super::digest::{Digest, MAX_COMPONENT};

/// Source of a policy's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicySource {
    /// Embedded in the binary.
    Builtin(String),
    /// Read from a file.
    File(PathBuf),
}

impl fmt::Display for PolicySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin {name}"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Permit for bytes, by their hash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Permit {
    /// All bytes.
    #[default]
    Any,
    /// Bytes of this hash only.
    Pinned(Digest),
    /// Bytes of the folder's list only.
    Listed(Arc<[Digest]>),
}

impl Permit {
    /// Returns true if bytes of this hash may be loaded.
    pub(super) fn allows(&self, digest: &Digest) -> bool {
        match self {
            Self::Any => true,
            Self::Pinned(pinned) => pinned == digest,
            Self::Listed(listed) => listed.contains(digest),
        }
    }

    /// Returns true if a loaded version may not decide any more, since its hash left the list. A pin restricts loading
    /// only.
    pub(super) fn revokes(&self, digest: &Digest) -> bool {
        matches!(self, Self::Listed(listed) if !listed.contains(digest))
    }

    pub(crate) fn check(&self, digest: &Digest) -> Result<(), PolicyProblem> {
        match self {
            _ if self.allows(digest) => Ok(()),
            Self::Pinned(pinned) => Err(PolicyProblem::NotPinned {
                found: hex(digest),
                pinned: hex(pinned),
            }),
            _ => Err(PolicyProblem::NotListed { found: hex(digest) }),
        }
    }
}

/// Policy that should be loaded.
#[derive(Debug, Clone)]
pub struct WantedPolicy {
    /// Name in the configuration, or name of the file in the policy folder.
    pub name: String,
    /// Source of the bytes.
    pub source: PolicySource,
    /// Parameters and limits.
    pub settings: PolicySettings,
    /// Circuit breaker of each version.
    pub circuit: CircuitSpec,
    /// Permit for its bytes.
    pub permit: Permit,
    /// Most remembered sessions.
    pub sessions: usize,
    /// True if it is a scorer of a pipeline.
    pub scores: bool,
}

impl WantedPolicy {
    /// Returns a policy with the bytes of a built-in one, for tests.
    #[cfg(test)]
    pub(super) fn of_builtin(name: &str, builtin: &str) -> Self {
        Self {
            name: name.to_owned(),
            source: PolicySource::Builtin(builtin.to_owned()),
            settings: PolicySettings::default(),
            circuit: CircuitSpec::default(),
            permit: Permit::Any,
            sessions: 3,
            scores: false,
        }
    }

    /// Returns the file of its bytes, if any.
    pub fn file(self) -> Option<PathBuf> {
        match self.source {
            PolicySource::File(path) => Some(path),
            PolicySource::Builtin(_) => None,
        }
    }
}

/// Reason for refusing a version.
#[derive(Debug, Error)]
pub enum PolicyProblem {
    /// The built-in policy does not exist.
    #[error("there is no built-in policy `{0}`")]
    NoBuiltin(String),
    /// The file is unreadable.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The file is too large for a policy.
    #[error("`{}` has {size} bytes, over the limit of {MAX_COMPONENT}", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file.
        size: u64,
    },
    /// The bytes have another hash than the pinned one.
    #[error("its bytes have the SHA-256 {found}, and `sha256` pins it to {pinned}")]
    NotPinned {
        /// Hash of the bytes.
        found: String,
        /// Configured hash.
        pinned: String,
    },
    /// The hash of the bytes is not on the list.
    #[error("its bytes have the SHA-256 {found}, which `policy-dir-allow` does not list")]
    NotListed {
        /// Hash of the bytes.
        found: String,
    },
    /// The version was rolled back, and no other version may decide.
    #[error(
        "an operator rolled its bytes back, and no other version of it may decide: resume it, or list a version before in \
         `policy-dir-allow`"
    )]
    HeldBack,
    /// The runtime refused the component.
    #[error("failed to load it")]
    Load(#[source] LoadError),
    /// A pipeline has the policy as a scorer, but it is none.
    #[error(
        "a pipeline has it as a scorer, and it is none: it has to export `score`, and must not request `worker.role`"
    )]
    NotAScorer,
    /// The compiler panicked: it has a bug.
    #[error("failed to compile it: the compiler panicked (its message is on stderr)")]
    Panicked,
}

impl PolicyProblem {
    /// Returns true if the compiler process failed.
    pub(super) fn is_of_compiler(&self) -> bool {
        matches!(self, Self::Load(error) if error.is_of_compiler())
    }

    /// Returns true if the machine may be at fault: the same bytes may load at another attempt.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Load(error) if error.is_transient())
    }

    /// Returns true if the parameters or limits are at fault, not the bytes.
    pub fn is_in_settings(&self) -> bool {
        matches!(self, Self::Load(error) if error.is_in_settings())
    }

    /// Returns the faults of its parameters, if it describes them.
    pub fn param_faults(&self) -> Option<&ParamFaults> {
        match self {
            Self::Load(error) => error.param_faults(),
            _ => None,
        }
    }

    /// Returns true if the pipeline may be at fault, not the bytes.
    pub fn is_in_pipeline(&self) -> bool {
        matches!(self, Self::NotAScorer)
    }

    /// Returns true if the pin may be at fault, not the bytes.
    pub fn is_in_pin(&self) -> bool {
        matches!(self, Self::NotPinned { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_restricts_loading_and_the_list_also_revokes() {
        let (one, other) = ([1; 32], [2; 32]);
        assert!(Permit::Any.check(&one).is_ok());
        let pinned = Permit::Pinned(one);
        assert!(pinned.check(&one).is_ok() && !pinned.revokes(&other));
        let refused = pinned.check(&other).unwrap_err();
        let hashes = [hex(&other), hex(&one)];
        assert!(
            hashes.iter().all(|hash| refused.to_string().contains(hash)),
            "{refused}"
        );
        let listed = Permit::Listed([one].into());
        assert!(listed.check(&one).is_ok() && !listed.revokes(&one) && listed.revokes(&other));
        let refused = listed.check(&other).unwrap_err();
        assert!(refused.to_string().contains(&hex(&other)), "{refused}");
    }
}
