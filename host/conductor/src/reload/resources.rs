//! Reading of the external resources, as steps of a plan.

use admin_pages::control::PlanStep;
use conductor_config::{Config, Diagnostics};
use external_resources::{Certificates, ExternalResources, Keys, Tokenizers};
use local_files::ConfigSource;

use super::{RefusedConfig, RefusedPlan, Steps};

/// Configuration with its source and its text.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfigText<'a> {
    pub(super) config: &'a Config,
    pub(super) source: &'a ConfigSource,
    pub(super) text: &'a str,
}

/// Reads the resources that a configuration names. Certificates and tokenizers with unchanged files
/// are taken from `before`.
///
/// # Errors
/// [`RefusedPlan`] for all unavailable keys, else all unavailable PEM files, else all unavailable tokenizers.
pub(super) fn read_resources(
    steps: &Steps,
    before: Option<&ExternalResources>,
    named: ConfigText<'_>,
) -> Result<ExternalResources, RefusedPlan> {
    let ConfigText { config, source, text } = named;
    let diagnostics = |problems| Diagnostics::new(&source.name(), text, problems);
    let keys = steps.run(PlanStep::ReadKeys, || {
        let read = Keys::read(config, source);
        read.map_err(|problems| RefusedConfig::Key(diagnostics(problems)))
    })?;
    let certificates = steps.run(PlanStep::ReadCertificates, || {
        let before = before.map(|before| &before.certificates);
        let read = Certificates::read(before, config, source);
        read.map_err(|problems| RefusedConfig::Certificate(diagnostics(problems)))
    })?;
    // Last: it takes the longest.
    let tokenizers = steps.run(PlanStep::ReadTokenizers, || {
        let before = before.map(|before| &before.tokenizers);
        let read = Tokenizers::read(before, config, source);
        read.map_err(|problems| RefusedConfig::Tokenizers(diagnostics(problems)))
    })?;
    Ok(ExternalResources {
        keys,
        certificates,
        tokenizers,
    })
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

    #[test]
    fn a_configuration_is_refused_for_each_unavailable_resource() {
        let folder = tempfile::tempdir().unwrap();
        let source = ConfigSource::File(folder.path().join("conductor.toml"));
        let check = |text: &str, is_expected: fn(&RefusedConfig) -> bool, places: &[(usize, usize)]| {
            let config = super::super::read(&source, text).expect("valid").config;
            let named = ConfigText {
                config: &config,
                source: &source,
                text,
            };
            let refused = read_resources(&Steps::default(), None, named).unwrap_err();
            assert!(is_expected(refused.reason()), "{refused:?}");
            let problems = refused.reason().problems().into_iter();
            let found: Vec<_> = problems.map(|problem| (problem.line, problem.column)).collect();
            assert_eq!(found, places);
        };
        let without = |line: &str| NAMED.replace(line, "");
        let is_key = |refused: &RefusedConfig| matches!(refused, RefusedConfig::Key(_));
        check(NAMED, is_key, &[(10, 17)]);
        let text = without("authorization = { file = \"engine\" }\n");
        let is_certificate = |refused: &RefusedConfig| matches!(refused, RefusedConfig::Certificate(_));
        check(&text, is_certificate, &[(3, 8), (4, 7)]);
        let tls = "[server.tls]\ncert = \"server.crt\"\nkey = \"server.key\"\n";
        let text = text.replace(tls, "");
        let is_tokenizer = |refused: &RefusedConfig| matches!(refused, RefusedConfig::Tokenizers(_));
        check(&text, is_tokenizer, &[(4, 13)]);
    }
}
