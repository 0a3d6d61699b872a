//! Diagnostic codes. Codes are stable: scripts and dashboards may match on them.

use std::fmt;

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but hardly does what its author intended.
    Warning,
}

impl Severity {
    /// Returns `error` or `warning`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// Declares the enum, its names and its severities in one table.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $severity:ident;)*) => {
        /// Kind of a diagnostic.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $variant,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns its stable name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns its severity.
            #[must_use]
            pub fn severity(self) -> Severity {
                match self {
                    $(Self::$variant => Severity::$severity,)*
                }
            }
        }
    };
}

codes! {
    /// The text is not TOML.
    Syntax = "syntax", Error;
    /// A key or table is defined twice.
    DuplicateKey = "duplicate-key", Error;
    /// The file is larger than any configuration.
    FileTooLarge = "file-too-large", Error;
    /// A file that is not UTF-8.
    NotUtf8 = "not-utf8", Error;
    /// An unknown key.
    UnknownKey = "unknown-key", Error;
    /// A required key is missing.
    MissingKey = "missing-key", Error;
    /// A key without the key that it depends on.
    NeedsKey = "needs-key", Error;
    /// Two keys that exclude each other.
    ConflictingKeys = "conflicting-keys", Error;
    /// A string where a number belongs, and the like.
    WrongType = "wrong-type", Error;
    /// A time or a size as a plain number.
    MissingUnit = "missing-unit", Error;
    /// An unreadable or disallowed value.
    InvalidValue = "invalid-value", Error;
    /// A number, time or size that is too small or too large.
    OutOfRange = "out-of-range", Error;
    /// A name that cannot be a file name or a metrics label.
    InvalidName = "invalid-name", Error;
    /// An unreadable socket address or URL.
    InvalidAddress = "invalid-address", Error;
    /// Not supported by this version.
    NotSupported = "not-supported", Error;
    /// One address for two purposes.
    SameAddress = "same-address", Error;
    /// A policy with an unknown builtin.
    NoSuchBuiltin = "no-such-builtin", Error;
    /// An unknown column, or one that cannot be used for a choice.
    NoSuchFeature = "no-such-feature", Error;
    /// A policy without a source.
    PolicyWithoutSource = "policy-without-source", Error;
    /// A parameter without a JSON form.
    InvalidParam = "invalid-param", Error;
    /// A policy that cannot be loaded. Detected when it is loaded.
    PolicyUnavailable = "policy-unavailable", Error;
    /// Tokenizer files that cannot be loaded. Detected when they are loaded.
    TokenizerUnavailable = "tokenizer-unavailable", Error;
    /// A model whose chats its engine renders without the chat template. Detected when its tokenizer is loaded.
    ChatsWithoutTokens = "chats-without-tokens", Warning;
    /// A tokenizer for the chats of another engine than that of a pool.
    OtherEngine = "other-engine", Warning;
    /// An unusable certificate, key or authority. Detected when the file is read.
    CertificateUnavailable = "certificate-unavailable", Error;
    /// A file without a key. Detected when it is read.
    KeyUnavailable = "key-unavailable", Error;
    /// A parameter that the policy does not know or refuses. Detected when the policy is loaded.
    RefusedParam = "refused-param", Error;
    /// Two clients with one key, or one client with the same key twice.
    DuplicateClientKey = "duplicate-client-key", Error;
    /// No worker is configured.
    NoPools = "no-pools", Error;
    /// Two workers with one name.
    DuplicateWorker = "duplicate-worker", Error;
    /// Two event publishers of one instance, tenant and rank.
    DuplicateService = "duplicate-service", Error;
    /// Several pools without routes.
    NoRoutes = "no-routes", Error;
    /// A route to an unknown pool.
    NoSuchPool = "no-such-pool", Error;
    /// A route with an unknown policy.
    NoSuchPolicy = "no-such-policy", Error;
    /// A key that is not in the environment of this check.
    KeyNotHere = "key-not-here", Warning;
    /// A file of a connection that cannot be read by this check. The router starts without it.
    FileNotHere = "file-not-here", Warning;
    /// An existing folder that cannot be read.
    UnreadableFolder = "unreadable-folder", Error;
    /// A listener without a key that other machines can reach.
    OpenListener = "open-listener", Warning;
    /// A listener with a key but without TLS that other machines can reach.
    PlainListener = "plain-listener", Warning;
    /// A folder that does not exist.
    MissingFolder = "missing-folder", Warning;
    /// A file of the policy folder with the name of a builtin, which is not loaded.
    IgnoredPolicyFile = "ignored-policy-file", Warning;
    /// A pool without workers.
    EmptyPool = "empty-pool", Warning;
    /// A pool that splits requests but lacks one of the sides.
    OneSidedPool = "one-sided-pool", Warning;
    /// A pool without a route.
    UnusedPool = "unused-pool", Warning;
    /// A pool that uses text as tokens but has no `assume-cache`, so that nothing can match.
    TextWithoutCache = "text-without-cache", Warning;
    /// A key, policy or value by its former name, which works for one more release.
    RenamedName = "renamed-name", Warning;
    /// A policy that no route uses.
    UnusedPolicy = "unused-policy", Warning;
    /// A route that an earlier one hides.
    UnreachableRoute = "unreachable-route", Warning;
    /// A route for models that no worker of its pool serves.
    NoSuchModel = "no-such-model", Warning;
}

impl Code {
    /// Returns `true` if the code reports something missing, which is uncertain in a file with syntax errors.
    pub(crate) fn rests_on_absence(self) -> bool {
        matches!(
            self,
            Self::MissingKey
                | Self::NeedsKey
                | Self::PolicyWithoutSource
                | Self::NoPools
                | Self::NoRoutes
                | Self::NoSuchPool
                | Self::NoSuchPolicy
                | Self::OpenListener
                | Self::EmptyPool
                | Self::OneSidedPool
                | Self::UnusedPool
                | Self::UnusedPolicy
                | Self::NoSuchModel
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_kebab_case() {
        let names: HashSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for name in names {
            let parts: Vec<&str> = name.split('-').collect();
            assert!(
                parts.iter().all(|part| !part.is_empty()
                    && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())),
                "{name}"
            );
        }
    }
}
