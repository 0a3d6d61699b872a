//! Checking a configuration without running it: its text, and then that all that it names can be had: policies,
//! tokenizers, certificates, keys and the files of connections.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use admin_pages::control::ProblemReport;
use conductor_config::{
    Code, Config, Diagnostic, Diagnostics, Examined, Location, Paint, PolicyConfig, Severity, UnreadPart,
};
use policy_runtime::{EngineError, EngineLimits, PolicyEngine};
use serde::Serialize;
use thiserror::Error;

use crate::reload::{self, reports};
use external_resources::ExternalResources;
use local_files::{ConfigSource, ReadConfigError};
use policy_store::{PolicyLibrary, Prepared, compile_bounds, unavailable_policies};

/// Result of checking a configuration.
#[derive(Debug)]
pub struct Checked {
    /// Every error and warning, for tools.
    pub problems: Vec<ProblemReport>,
    /// Number of errors.
    pub errors: usize,
    drawings: Vec<Diagnostics>,
}

/// Mistake in the output of `--output json`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ListedProblem<'p> {
    /// Mistake of a file, with its line and column.
    Placed(&'p ProblemReport),
    /// Mistake of a configuration that flags stand for: the user has not written its text.
    OfFlags {
        code: &'p str,
        severity: &'static str,
        message: &'p str,
        help: Option<&'p str>,
    },
}

impl<'p> ListedProblem<'p> {
    fn of_flags(problem: &'p ProblemReport) -> Self {
        Self::OfFlags {
            code: &problem.code,
            severity: problem.severity,
            message: &problem.message,
            help: problem.help.as_deref(),
        }
    }
}

/// A configuration could not be checked.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The configuration cannot be read.
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
    let text = match source.read() {
        Err(ReadConfigError::NotUtf8(mistakes)) => return Ok(Checked::of(mistakes)),
        read => read?,
    };
    let examined = match reload::examine(source, &text) {
        Ok(examined) => examined,
        Err(mistakes) => return Ok(Checked::of(mistakes)),
    };
    let unavailable = unavailable(&examined, source, &text)?;
    let mut resources = ExternalResources::problems(&examined.config, source, &text);
    if examined.diagnostics.error_count() > 0 {
        // A warning may be the consequence of what could not be read.
        let errors = resources.items().iter();
        let errors = errors.filter(|item| item.severity() == Severity::Error);
        resources = Diagnostics::new(&source.name(), &text, errors.cloned().collect());
    }
    let level = reload::log_level_problem(&examined.config);
    let level = Diagnostics::new(&source.name(), &text, level.into_iter().collect());
    let mut checked = Checked::of(examined.diagnostics);
    checked.add(level);
    checked.add(unavailable);
    checked.add(resources);
    Ok(checked)
}

/// Returns the reasons for which policies of the configuration cannot be loaded. For a policy whose settings could not
/// all be read, only faults of the written parameters are listed. For one whose source could not be read, none are.
fn unavailable(examined: &Examined, source: &ConfigSource, text: &str) -> Result<Diagnostics, CheckError> {
    let unread = |policy: &PolicyConfig| examined.unread.get(&policy.name);
    let mut config = examined.config.clone();
    config
        .policies
        .retain(|policy| unread(policy) != Some(&UnreadPart::Source));
    let prepared = prepare(&config, source)?;
    let (mut sound, mut doubtful) = (config.clone(), config);
    sound.policies.retain(|policy| unread(policy).is_none());
    doubtful.policies.retain(|policy| unread(policy).is_some());
    let broken = broken_lines(&examined.diagnostics);
    let missing = doubtful
        .policies
        .iter()
        .map(|policy| policy.settings_at().location);
    let missing: BTreeSet<Location> = missing.collect();
    let holds = |item: &&Diagnostic| {
        let at = item.primary.location;
        item.code == Code::RefusedParam && !missing.contains(&at) && !broken.contains(&at.line)
    };
    let of = |config: &Config| unavailable_policies(config, &prepared);
    let (sound, doubtful) = (of(&sound), of(&doubtful));
    let items = sound.iter().chain(doubtful.iter().filter(holds));
    Ok(Diagnostics::new(&source.name(), text, items.cloned().collect()))
}

/// Returns the lines that are no TOML.
fn broken_lines(mistakes: &Diagnostics) -> HashSet<usize> {
    let items = mistakes.items().iter();
    let syntax = items.filter(|item| item.code == Code::Syntax);
    syntax.map(|item| item.primary.location.line).collect()
}

/// Loads the policies of a configuration, as far as that can be done.
fn prepare(config: &Config, source: &ConfigSource) -> Result<Prepared, CheckError> {
    let engine = PolicyEngine::new(EngineLimits::default()).map_err(CheckError::Engine)?;
    let engine = engine.with_bounds(compile_bounds(config));
    let mut library = PolicyLibrary::new(engine, Arc::default());
    Ok(library.prepare_settled(|| policy_store::wanted_policies(config, source)))
}

impl Checked {
    fn of(diagnostics: Diagnostics) -> Self {
        Self {
            problems: reports(&diagnostics),
            errors: diagnostics.error_count(),
            drawings: vec![diagnostics],
        }
    }

    fn add(&mut self, diagnostics: Diagnostics) {
        self.errors += diagnostics.error_count();
        self.problems.extend(reports(&diagnostics));
        self.drawings.push(diagnostics);
    }

    /// Returns all mistakes for people, drawn over their lines, without colours. Empty without mistakes.
    #[must_use]
    pub fn rendered(&self) -> String {
        self.render(Paint::Plain)
    }

    /// Returns all mistakes for people. Those of flags have no places.
    pub(crate) fn for_people(&self, source: &ConfigSource, paint: Paint) -> String {
        match source {
            ConfigSource::File(_) => self.render(paint),
            // Their places would be those of a text that the user has not written.
            ConfigSource::Text(_) => self.drawings.iter().map(without_places).collect(),
        }
    }

    fn render(&self, paint: Paint) -> String {
        let drawn = self.drawings.iter().filter(|drawing| !drawing.is_empty());
        let drawn: Vec<String> = drawn.map(|drawing| drawing.render(paint)).collect();
        drawn.join("\n")
    }

    /// Returns all mistakes for tools. Those of flags have no line and column.
    pub(crate) fn listed(&self, source: &ConfigSource) -> Vec<ListedProblem<'_>> {
        let is_file = matches!(source, ConfigSource::File(_));
        let listed = |problem| match is_file {
            true => ListedProblem::Placed(problem),
            false => ListedProblem::of_flags(problem),
        };
        self.problems.iter().map(listed).collect()
    }

    /// Returns a summary in one line.
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

/// Returns mistakes for people. Those of a configuration that flags stand for have no places.
pub(crate) fn for_people(mistakes: &Diagnostics, source: &ConfigSource, paint: Paint) -> String {
    match source {
        ConfigSource::File(_) => mistakes.render(paint),
        ConfigSource::Text(_) => without_places(mistakes),
    }
}

/// Returns mistakes without their places, one a paragraph.
fn without_places(mistakes: &Diagnostics) -> String {
    let paragraph = |item: &Diagnostic| {
        let severity = match item.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let help = item.help.as_ref().map(|help| format!("  help: {help}\n"));
        format!("{severity}: {}\n{}", item.message, help.unwrap_or_default())
    };
    mistakes.items().iter().map(paragraph).collect()
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
        let findings: Vec<_> = checked
            .problems
            .iter()
            .map(|problem| (problem.line, &*problem.code))
            .collect();
        assert_eq!(
            findings,
            [
                (2, "certificate-unavailable"),
                (3, "certificate-unavailable"),
                (5, "key-not-here"),
                (7, "key-unavailable"),
            ]
        );
        assert_eq!(checked.errors, 3, "{}", checked.rendered());
    }

    /// Returns the places and codes of all mistakes of a file in a folder of its own.
    #[track_caller]
    fn findings(text: &[u8]) -> Vec<(usize, usize, String)> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("conductor.toml");
        std::fs::write(&file, text).unwrap();
        std::fs::write(folder.path().join("no-folder"), "").unwrap();
        let checked = check(&ConfigSource::File(file)).unwrap();
        let problems = checked.problems.into_iter();
        problems
            .map(|problem| (problem.line, problem.column, problem.code))
            .collect()
    }

    #[track_caller]
    fn check_findings(text: &str, expected: &[(usize, usize, &str)]) {
        let findings = findings(text.as_bytes());
        let findings: Vec<_> = findings
            .iter()
            .map(|(line, column, code)| (*line, *column, &**code))
            .collect();
        assert_eq!(findings, expected);
    }

    const POOL: &str =
        "[[pools.a.workers]]\nurl = \"http://a:1\"\n[[routes]]\npool = \"a\"\npolicy = \"mine\"\n";

    #[test]
    fn refused_parameters_are_reported_beside_mistakes_of_other_tables() {
        let text = "[server]\nlistne = \"a\"\n[policies.mine]\nbuiltin = \"cache-aware\"\n\
                    params = { request-tokns = 1, request-tokens = \"many\" }\n";
        check_findings(
            &format!("{text}{POOL}"),
            &[
                (2, 1, "unknown-key"),
                (5, 12, "refused-param"),
                (5, 48, "refused-param"),
            ],
        );
    }

    #[test]
    fn refused_parameters_are_reported_beside_mistakes_of_their_own_table() {
        let text = "[policies.mine]\nbuiltin = \"cache-aware\"\nlimit = 1\n\
                    params = { request-tokns = 1, request-tokens = nan }\n";
        check_findings(
            &format!("{text}{POOL}"),
            &[
                (3, 1, "unknown-key"),
                (4, 48, "invalid-param"),
                (4, 12, "refused-param"),
            ],
        );
    }

    #[test]
    fn refused_parameters_are_reported_beside_broken_lines() {
        let text = "[server]\nlisten = \n[policies.mine]\nbuiltin = \"cache-aware\"\nparams = { request-tokns = 1 }\n";
        let findings = findings(format!("{text}{POOL}").as_bytes());
        let codes: Vec<_> = findings.iter().map(|(line, _, code)| (*line, &**code)).collect();
        assert_eq!(codes, [(2, "syntax"), (5, "refused-param")]);
    }

    #[test]
    fn a_log_level_that_the_filter_refuses_is_reported_at_its_place() {
        for level in ["info[x", "a[b]=foo", "[", "x[y}=info"] {
            let text = format!(
                "[log]\nformat = \"text\"\nlevel = \"{level}\"\n[[pools.a.workers]]\nurl = \"http://a:1\"\n"
            );
            check_findings(&text, &[(3, 9, "invalid-value")]);
            let source = ConfigSource::Text(text.clone());
            let refused = reload::read(&source, &text).unwrap_err();
            let first = &refused.items()[0];
            assert_eq!(first.primary.location.line, 3, "{refused}");
        }
        let spans =
            "[log]\nlevel = \"warn,proxy[request]=trace\"\n[[pools.a.workers]]\nurl = \"http://a:1\"\n";
        check_findings(spans, &[]);
    }

    #[test]
    fn a_policy_whose_source_cannot_be_read_is_not_loaded() {
        let text = "[policies.mine]\nbuiltin = 3\nparams = { nonsense = 1 }\n";
        check_findings(&format!("{text}{POOL}"), &[(2, 11, "wrong-type")]);
    }

    #[test]
    fn a_policy_folder_that_cannot_be_read_is_an_error() {
        let text = "policy-dir = \"no-folder\"\n[[pools.a.workers]]\nurl = \"http://a:1\"\n";
        check_findings(text, &[(1, 14, "unreadable-folder")]);
    }

    #[test]
    fn the_first_byte_that_is_no_utf8_is_reported_with_its_place() {
        let findings = findings(b"[server]\nlisten = \"\xe9\"\n");
        assert_eq!(findings, [(2, 11, "not-utf8".to_owned())]);
    }

    #[test]
    fn a_listener_that_others_reach_without_a_key_is_warned_of() {
        let text = "[indexer]\nlisten = \"0.0.0.0:13333\"\n[[pools.a.workers]]\nurl = \"http://a:1\"\n";
        check_findings(text, &[(2, 10, "open-listener")]);
    }
}
