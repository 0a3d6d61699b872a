//! The kinds of mistakes there are. A code is stable: scripts and dashboards may match on it.

use std::fmt;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can, but hardly does what its author meant.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
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
        /// What kind of mistake it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $variant,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its stable name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Whether it stops the configuration from being used.
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
    /// The same key or table is written twice.
    DuplicateKey = "duplicate-key", Error;
    /// The file is larger than any configuration.
    FileTooLarge = "file-too-large", Error;
    /// A file that is not UTF-8.
    NotUtf8 = "not-utf8", Error;
    /// A key nobody reads.
    UnknownKey = "unknown-key", Error;
    /// A key that must be there is not.
    MissingKey = "missing-key", Error;
    /// A key that means something only together with another.
    NeedsKey = "needs-key", Error;
    /// Two keys that exclude each other.
    ConflictingKeys = "conflicting-keys", Error;
    /// A string where a number belongs, and the like.
    WrongType = "wrong-type", Error;
    /// A time or a size as a plain number.
    MissingUnit = "missing-unit", Error;
    /// A value that cannot be read or is none of those allowed.
    InvalidValue = "invalid-value", Error;
    /// A number, time or size that is too small or too large.
    OutOfRange = "out-of-range", Error;
    /// A name that could not be a file name or a metric label.
    InvalidName = "invalid-name", Error;
    /// A socket address or URL that cannot be read.
    InvalidAddress = "invalid-address", Error;
    /// Something this version does not do.
    NotSupported = "not-supported", Error;
    /// One address used for two things.
    SameAddress = "same-address", Error;
    /// A policy that names a builtin there is not.
    NoSuchBuiltin = "no-such-builtin", Error;
    /// A column there is not, or that nothing can be chosen by.
    NoSuchFeature = "no-such-feature", Error;
    /// A policy of which nothing says where it comes from.
    PolicyWithoutSource = "policy-without-source", Error;
    /// A parameter that has no JSON form.
    InvalidParam = "invalid-param", Error;
    /// A policy that cannot be had. Only known once it is loaded.
    PolicyUnavailable = "policy-unavailable", Error;
    /// A tokenizer whose files make none. Only known once it is loaded.
    TokenizerUnavailable = "tokenizer-unavailable", Error;
    /// A certificate, its key or an authority that cannot be had. Only known once the file is read.
    CertificateUnavailable = "certificate-unavailable", Error;
    /// A key whose file has none. Only known once it is read.
    KeyUnavailable = "key-unavailable", Error;
    /// A parameter that the policy does not know, or that is not as it says. Only known once the policy is asked.
    RefusedParam = "refused-param", Error;
    /// Two clients of one key, or one client with the same key twice.
    DuplicateClientKey = "duplicate-client-key", Error;
    /// No worker to send anything to.
    NoPools = "no-pools", Error;
    /// Two workers of one name.
    DuplicateWorker = "duplicate-worker", Error;
    /// Two event publishers of one instance, tenant and rank.
    DuplicateService = "duplicate-service", Error;
    /// Several pools, and nothing says what goes where.
    NoRoutes = "no-routes", Error;
    /// A route to a pool there is not.
    NoSuchPool = "no-such-pool", Error;
    /// A route with a policy there is not.
    NoSuchPolicy = "no-such-policy", Error;
    /// A key that is not in the environment of whoever checks.
    KeyNotHere = "key-not-here", Warning;
    /// A folder that is there and cannot be read.
    UnreadableFolder = "unreadable-folder", Error;
    /// A listener that other machines reach and that needs no key.
    OpenListener = "open-listener", Warning;
    /// A listener that other machines reach, with a key and without TLS.
    PlainListener = "plain-listener", Warning;
    /// A folder that is not there.
    MissingFolder = "missing-folder", Warning;
    /// A file of the policy folder that is named like a builtin and is not loaded.
    IgnoredPolicyFile = "ignored-policy-file", Warning;
    /// A pool without workers.
    EmptyPool = "empty-pool", Warning;
    /// A pool that splits requests and lacks one of the sides.
    OneSidedPool = "one-sided-pool", Warning;
    /// A pool no route leads to.
    UnusedPool = "unused-pool", Warning;
    /// A pool whose workers no `assume-cache` speaks for, and whose prompts nobody else could know.
    TextWithoutCache = "text-without-cache", Warning;
    /// A policy no route names.
    UnusedPolicy = "unused-policy", Warning;
    /// A route whose requests are all taken by an earlier one.
    UnreachableRoute = "unreachable-route", Warning;
    /// A route for models none of its pool's workers serves.
    NoSuchModel = "no-such-model", Warning;
}

impl Code {
    /// Whether it says that something is missing, which nobody can know of a file that does not parse to its end.
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
