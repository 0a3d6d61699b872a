//! What a configuration names that lies elsewhere: keys, PEM files and tokenizers. Read before the configuration is put in
//! force, and again whenever one of their files may be another.

use std::path::PathBuf;

use conductor_config::{Config, Diagnostics};

use crate::certificates::Certificates;
use crate::keys::Keys;
use crate::reload::{PlanStep, RefusedConfig, RefusedPlan, Steps};
use crate::tokenizers::Tokenizers;
use local_files::ConfigSource;

/// All that one configuration names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ExternalResources {
    /// Of clients, of workers and of whoever may change the fleet.
    pub(crate) keys: Keys,
    /// What is shown and believed in TLS.
    pub(crate) certificates: Certificates,
    /// Of the models that have them.
    pub(crate) tokenizers: Tokenizers,
}

impl ExternalResources {
    /// Reads what a configuration names, which was read from `text`. Certificates and tokenizers whose files nobody changed are
    /// those of `before`.
    ///
    /// # Errors
    /// [`RefusedPlan`] for what cannot be had: the first key, else the first PEM file, else every tokenizer.
    pub(crate) fn read(
        steps: &Steps,
        before: Option<&Self>,
        (config, source, text): (&Config, &ConfigSource, &str),
    ) -> Result<Self, RefusedPlan> {
        let keys = steps.run(PlanStep::ReadKeys, || {
            Keys::read(config, source).map_err(RefusedConfig::Key)
        })?;
        let certificates = steps.run(PlanStep::ReadCertificates, || {
            let before = before.map(|before| &before.certificates);
            Certificates::read(before, config, source).map_err(RefusedConfig::Certificate)
        })?;
        // Last: it takes the longest.
        let tokenizers = steps.run(PlanStep::ReadTokenizers, || {
            let before = before.map(|before| &before.tokenizers);
            Tokenizers::read(before, config, source).map_err(|problems| {
                RefusedConfig::Tokenizers(Diagnostics::new(&source.name(), text, problems))
            })
        })?;
        Ok(Self {
            keys,
            certificates,
            tokenizers,
        })
    }

    /// All that [`ExternalResources::read`] would fail for.
    pub(crate) fn problems((config, source, text): (&Config, &ConfigSource, &str)) -> Diagnostics {
        let mut problems = Keys::problems(config, source);
        problems.extend(Certificates::problems(config, source));
        problems.extend(Tokenizers::problems(config, source));
        Diagnostics::new(&source.name(), text, problems)
    }

    /// The files that they are in.
    pub(crate) fn files(config: &Config, source: &ConfigSource) -> Vec<PathBuf> {
        let mut files = Keys::files(config, source);
        files.extend(Certificates::files(config, source));
        files.extend(Tokenizers::files(config, source));
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let parsed = crate::reload::read(&source, NAMED).expect("valid");
        (parsed.config, source)
    }

    #[test]
    fn every_file_that_is_named_is_watched() {
        let (config, source) = named();
        let files = ExternalResources::files(&config, &source);
        for name in ["server.crt", "server.key", "tokenizer.json", "engine"] {
            assert!(files.contains(&PathBuf::from("/nowhere").join(name)), "{files:?}");
        }
    }

    #[test]
    fn whatever_cannot_be_had_is_told_in_the_order_of_the_file() {
        let (config, source) = named();
        let problems = ExternalResources::problems((&config, &source, NAMED));
        let told: Vec<_> = problems
            .items()
            .iter()
            .map(|item| (item.primary.location.line, item.code.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (3, "certificate-unavailable"),
                (4, "certificate-unavailable"),
                (7, "tokenizer-unavailable"),
                (10, "key-unavailable"),
            ]
        );
    }

    #[test]
    fn a_configuration_is_refused_for_each_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let source = ConfigSource::File(folder.path().join("conductor.toml"));
        let check = |text: &str, is_expected: fn(&RefusedConfig) -> bool| {
            let config = crate::reload::read(&source, text).expect("valid").config;
            let refused =
                ExternalResources::read(&Steps::default(), None, (&config, &source, text)).unwrap_err();
            assert!(is_expected(refused.reason()), "{refused:?}");
        };
        let without = |line: &str| NAMED.replace(line, "");
        check(NAMED, |refused| matches!(refused, RefusedConfig::Key(_)));
        let text = without("authorization = { file = \"engine\" }\n");
        check(&text, |refused| matches!(refused, RefusedConfig::Certificate(_)));
        let tls = "[server.tls]\ncert = \"server.crt\"\nkey = \"server.key\"\n";
        let text = text.replace(tls, "");
        check(&text, |refused| matches!(refused, RefusedConfig::Tokenizers(_)));
    }
}
