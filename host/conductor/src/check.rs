//! Checking a configuration without running it: its text, and then that all that it names can be had: policies, tokenizers,
//! certificates and keys.

use std::sync::Arc;

use conductor_config::{Config, Diagnostics, Paint};
use policy_runtime::{EngineError, EngineLimits, PolicyEngine};
use thiserror::Error;

use crate::compose;
use crate::config_source::{ConfigSource, ReadConfigError};
use crate::materials::Materials;
use crate::policy_library::PolicyLibrary;
use crate::reload::{self, reports};
use crate::status::ProblemReport;

/// What there is to say about a configuration.
#[derive(Debug)]
pub struct Checked {
    /// Every error and warning, for tools.
    pub problems: Vec<ProblemReport>,
    /// The same for people: mistakes of the text are drawn over the lines concerned.
    pub rendered: String,
    /// How many of them are errors.
    pub errors: usize,
}

/// A configuration could not be checked.
#[derive(Debug, Error)]
pub enum CheckError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadConfigError),
    /// WebAssembly cannot be set up here, so policies cannot be tried.
    #[error("failed to start the policy engine")]
    Engine(#[source] EngineError),
}

/// Checks a configuration, and loads its policies, tokenizers, certificates and keys.
///
/// # Errors
/// [`CheckError`]; mistakes of the configuration are no error of checking it.
pub fn check(source: &ConfigSource) -> Result<Checked, CheckError> {
    let text = source.read()?;
    Ok(match reload::read(source, &text) {
        Ok(parsed) => {
            let mut checked = Checked::of(&parsed.warnings);
            checked.add(&unavailable(&parsed.config, source, &text)?);
            checked.add(&Materials::problems((&parsed.config, source, &text)));
            checked
        }
        Err(mistakes) => Checked::of(&mistakes),
    })
}

/// Policies of the configuration that cannot be loaded.
fn unavailable(config: &Config, source: &ConfigSource, text: &str) -> Result<Diagnostics, CheckError> {
    let engine = PolicyEngine::new(EngineLimits::default()).map_err(CheckError::Engine)?;
    let mut library = PolicyLibrary::new(engine, Arc::default());
    let prepared = library.prepare_settled(|| compose::wanted_policies(config, source));
    Ok(reload::unavailable_policies((config, source, text), &prepared))
}

impl Checked {
    fn of(diagnostics: &Diagnostics) -> Self {
        Self {
            problems: reports(diagnostics),
            rendered: diagnostics.render(Paint::Plain),
            errors: diagnostics.error_count(),
        }
    }

    fn add(&mut self, errors: &Diagnostics) {
        if !self.rendered.is_empty() && !errors.is_empty() {
            self.rendered.push('\n');
        }
        self.rendered += &errors.render(Paint::Plain);
        self.errors += errors.error_count();
        self.problems.extend(reports(errors));
    }

    /// One line.
    #[must_use]
    pub fn summary(&self) -> String {
        let warnings = self.problems.len() - self.errors;
        match (self.errors, warnings) {
            (0, 0) => "valid".to_owned(),
            (0, warnings) => format!("valid, {warnings} warning(s)"),
            (errors, 0) => format!("{errors} error(s)"),
            (errors, warnings) => format!("{errors} error(s), {warnings} warning(s)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_keys_and_certificates_that_are_not_there_are_errors_and_variables_that_are_not_set_warnings()
    {
        let text = "[server.tls]\ncert = \"/nowhere/crt\"\nkey = \"/nowhere/key\"\n\
             [clients.a]\nkey = { env = \"CONDUCTOR_KEY_THAT_NOBODY_SETS\" }\n\
             [pools.a]\nauthorization = { file = \"/nowhere/engine\" }\nworkers = [{ url = \"http://a:1\" }]\n";
        let checked = check(&ConfigSource::Text(text.to_owned())).unwrap();
        let told: Vec<_> = checked
            .problems
            .iter()
            .map(|problem| (problem.line, &*problem.code))
            .collect();
        assert_eq!(
            told,
            [
                (2, "certificate-unavailable"),
                (3, "certificate-unavailable"),
                (5, "key-not-here"),
                (7, "key-unavailable"),
            ]
        );
        assert_eq!(checked.errors, 3, "{}", checked.rendered);
    }
}
