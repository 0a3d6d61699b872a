//! External resources of a configuration: keys, PEM files and tokenizers, read from files and the environment.
//!
//! Each kind has a reader, a list of its files to watch, and diagnostics of the unavailable ones. Unchanged
//! certificates and tokenizers are taken from the resources before.

mod certificates;
mod connection_files;
mod keys;
#[cfg(test)]
mod test_config;
mod tokenizers;

use std::path::PathBuf;

use conductor_config::{Config, Diagnostic, Diagnostics};

use local_files::ConfigSource;

pub use certificates::Certificates;
pub use keys::{Key, Keys};
pub use tokenizers::Tokenizers;

/// Resources of one configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalResources {
    /// Keys of clients, workers and operators.
    pub keys: Keys,
    /// Certificates, their keys, and authorities.
    pub certificates: Certificates,
    /// Tokenizers of models.
    pub tokenizers: Tokenizers,
}

impl ExternalResources {
    /// Returns a diagnostic for every unavailable resource, for every unreadable file of a connection, and for every
    /// resource of limited use.
    #[must_use]
    pub fn problems(config: &Config, source: &ConfigSource, text: &str) -> Diagnostics {
        let mut problems = Keys::problems(config, source);
        problems.extend(Certificates::problems(config, source));
        problems.extend(Tokenizers::problems(config, source));
        problems.extend(connection_files::problems(config, source));
        Diagnostics::new(&source.name(), text, problems)
    }

    /// Returns `true` if the event feeds of a configuration are reached with the keys and certificates of `other`.
    #[must_use]
    pub fn has_same_feeds(&self, other: &Self) -> bool {
        self.keys.has_same_feeds(&other.keys) && self.certificates.has_same_pools(&other.certificates)
    }

    /// Returns the warnings about available resources, with places in the text of this configuration.
    #[must_use]
    pub fn warnings(&self, config: &Config) -> Vec<Diagnostic> {
        self.tokenizers.warnings(config)
    }

    /// Returns the files of the resources.
    #[must_use]
    pub fn files(config: &Config, source: &ConfigSource) -> Vec<PathBuf> {
        let mut files = Keys::files(config, source);
        files.extend(Certificates::files(config, source));
        files.extend(Tokenizers::files(config, source));
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_config::parsed;

    /// A key, two PEM files and a tokenizer, of which none is there.
    const NAMED: &str = r#"
[server.tls]
cert = "server.crt"
key = "server.key"

[models.m]
tokenizer = "tokenizer.json"

[pools.a]
authorization = { file = "engine" }
workers = [{ url = "http://a:1" }]
"#;

    fn named() -> (Config, ConfigSource) {
        let source = ConfigSource::File("/nowhere/conductor.toml".into());
        (parsed(&source, NAMED), source)
    }

    #[test]
    fn every_named_file_is_watched() {
        let (config, source) = named();
        let files = ExternalResources::files(&config, &source);
        for name in ["server.crt", "server.key", "tokenizer.json", "engine"] {
            assert!(files.contains(&PathBuf::from("/nowhere").join(name)), "{files:?}");
        }
    }

    #[test]
    fn unavailable_resources_are_reported_in_the_order_of_the_file() {
        let (config, source) = named();
        let problems = ExternalResources::problems(&config, &source, NAMED);
        let reported: Vec<_> = problems
            .items()
            .iter()
            .map(|item| (item.primary.location.line, item.code.as_str()))
            .collect();
        assert_eq!(
            reported,
            [
                (3, "certificate-unavailable"),
                (4, "certificate-unavailable"),
                (7, "tokenizer-unavailable"),
                (10, "key-unavailable"),
            ]
        );
    }
}
