//! What a configuration, or the policy folder, asks the library for, and what becomes of files that it does not take.

use std::fmt::{self, Write as _};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use policy_runtime::{LoadError, ParamFaults, PolicySettings};
use routing::CircuitSpec;
use thiserror::Error;

use super::component::{Digest, MAX_COMPONENT};

/// Where a policy's bytes come from.
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

/// Which bytes may be loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Permit {
    /// Any.
    #[default]
    Any,
    /// These only.
    Pinned(Digest),
    /// Those of the folder's list only.
    Listed(Arc<[Digest]>),
}

impl Permit {
    /// Whether bytes of this hash may be loaded.
    pub(super) fn allows(&self, digest: &Digest) -> bool {
        match self {
            Self::Any => true,
            Self::Pinned(pinned) => pinned == digest,
            Self::Listed(listed) => listed.contains(digest),
        }
    }

    /// Whether a version that was loaded once may not decide any more, not even for a newer one: its hash was taken off the list.
    /// A pin says only what is loaded next.
    pub(super) fn revokes(&self, digest: &Digest) -> bool {
        matches!(self, Self::Listed(listed) if !listed.contains(digest))
    }

    pub(super) fn check(&self, digest: &Digest) -> Result<(), PolicyProblem> {
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

/// A policy that should be there.
#[derive(Debug, Clone)]
pub struct WantedPolicy {
    /// Its name in the configuration, or its file's name in the policy folder.
    pub name: String,
    /// Its bytes.
    pub source: PolicySource,
    /// Its parameters and limits.
    pub settings: PolicySettings,
    /// When a version of it is not asked.
    pub circuit: CircuitSpec,
    /// Which bytes it may have.
    pub permit: Permit,
    /// Most sessions that it remembers.
    pub sessions: usize,
    /// Whether it is a scorer of some pipeline.
    pub scores: bool,
}

impl WantedPolicy {
    /// The file it is read from, where there is one.
    pub fn file(self) -> Option<PathBuf> {
        match self.source {
            PolicySource::File(path) => Some(path),
            PolicySource::Builtin(_) => None,
        }
    }
}

/// Why a version could not be used.
#[derive(Debug, Error)]
pub enum PolicyProblem {
    /// No such built-in.
    #[error("there is no built-in policy `{0}`")]
    NoBuiltin(String),
    /// The file could not be read.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file is no policy's.
    #[error("`{}` has {size} bytes, over the limit of {MAX_COMPONENT}", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// Its bytes are not those it is pinned to.
    #[error("its bytes have the SHA-256 {found}, and `sha256` pins it to {pinned}")]
    NotPinned {
        /// What they have.
        found: String,
        /// What they should have.
        pinned: String,
    },
    /// Its bytes are not among those let in.
    #[error("its bytes have the SHA-256 {found}, which `policy-dir-allow` does not list")]
    NotListed {
        /// What they have.
        found: String,
    },
    /// It was rolled back, and nothing else of it may decide.
    #[error(
        "an operator rolled its bytes back, and no other version of it may decide: resume it, or list a version before in \
         `policy-dir-allow`"
    )]
    HeldBack,
    /// The runtime refused it.
    #[error("failed to load it")]
    Load(#[source] LoadError),
    /// A pipeline has it as a scorer.
    #[error(
        "it is no scorer, which a pipeline has it as: it has to export `score`, and must not ask for `worker.role`"
    )]
    NotAScorer,
    /// The compiler has a bug that this component brings up.
    #[error("failed to compile it: the compiler panicked (its message is on stderr)")]
    Panicked,
}

impl PolicyProblem {
    /// Whether the parameters or limits are at fault, not the bytes.
    pub fn is_in_settings(&self) -> bool {
        matches!(self, Self::Load(error) if error.is_in_settings())
    }

    /// What is wrong with which of its parameters, where it tells what they are.
    pub fn param_faults(&self) -> Option<&ParamFaults> {
        match self {
            Self::Load(error) => error.param_faults(),
            _ => None,
        }
    }

    /// Whether the pipeline is at fault that has it as a scorer, if not the bytes.
    pub fn is_in_pipeline(&self) -> bool {
        matches!(self, Self::NotAScorer)
    }

    /// Whether the pin is at fault, if not the bytes.
    pub fn is_in_pin(&self) -> bool {
        matches!(self, Self::NotPinned { .. })
    }
}

/// Returns a SHA-256 in hexadecimal.
#[must_use]
pub fn hex(digest: &Digest) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_says_what_is_loaded_and_the_list_also_what_stays() {
        let (one, other) = ([1; 32], [2; 32]);
        assert!(Permit::Any.check(&one).is_ok());
        let pinned = Permit::Pinned(one);
        assert!(pinned.check(&one).is_ok() && !pinned.revokes(&other));
        let refused = pinned.check(&other).unwrap_err();
        let told = [hex(&other), hex(&one)];
        assert!(
            told.iter().all(|hash| refused.to_string().contains(hash)),
            "{refused}"
        );
        let listed = Permit::Listed([one].into());
        assert!(listed.check(&one).is_ok() && !listed.revokes(&one) && listed.revokes(&other));
        let refused = listed.check(&other).unwrap_err();
        assert!(refused.to_string().contains(&hex(&other)), "{refused}");
    }
}
