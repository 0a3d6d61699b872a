//! Keys of agreed entries: the kind of a decision, and a hash of its subject.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of a subject's hash.
const DIGITS: usize = 32;

/// Kind of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AgreedKind {
    /// Versions of a policy that are held back.
    Hold,
    /// Policies of a route.
    Route,
    /// A canary that is stopped, or resumed.
    Canary,
    /// An instance that was changed over HTTP.
    Instance,
}

impl AgreedKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Hold, Self::Route, Self::Canary, Self::Instance];

    /// Returns the name in a key.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Route => "route",
            Self::Canary => "canary",
            Self::Instance => "instance",
        }
    }
}

/// Key of a decision. Its text has only letters, digits and a dot, whatever the subject is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgreedKey {
    kind: AgreedKind,
    digits: String,
}

impl AgreedKey {
    /// Returns the key of a subject.
    #[must_use]
    pub fn of(kind: AgreedKind, subject: &str) -> Self {
        let digest = Sha256::digest(subject);
        let mut digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.truncate(DIGITS);
        Self { kind, digits }
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> AgreedKind {
        self.kind
    }

    /// Reads the text of a key.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, digits) = text.split_once('.')?;
        let kind = AgreedKind::ALL.into_iter().find(|known| known.as_str() == kind)?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_whole = digits.len() == DIGITS && digits.bytes().all(is_hex);
        is_whole.then(|| Self {
            kind,
            digits: digits.to_owned(),
        })
    }
}

impl fmt::Display for AgreedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.as_str(), self.digits)
    }
}
