//! `conductor policy inspect`: what a binary is, without having it decide.

use std::fmt;

use policy_component::{Anatomy, Layer};
use policy_runtime::{ComponentInterface, DescribedPolicy, Inspection};
use serde::Serialize;

use super::component::ComponentFile;
use super::diagnostic::Diagnostic;
use super::parameters::ParameterRow;
use super::settings::GivenSettings;
use super::{engine, parameters, print, settings};
use crate::args::InspectArgs;
use crate::{Exit, UsageError};
use operator_tools::units::{micros, size};

/// Runs `conductor policy inspect`.
///
/// # Errors
/// If the file or its settings cannot be read, the runtime cannot start, or the file is not WebAssembly.
pub(super) fn run(args: &InspectArgs) -> anyhow::Result<Exit> {
    let subject = ComponentFile::find(&args.policy).map_err(UsageError::new)?;
    let mut report = InspectReport::of(&subject, subject.dissect()?);
    match (
        report.layer,
        settings::read(&args.settings, &subject.name).map_err(UsageError::new)?,
    ) {
        ("component", Ok(given)) => report.inspect_component(&subject, &given)?,
        (_, Err(mistakes)) => report.findings = mistakes,
        _ => report.findings.push(
            Diagnostic::error(
                "core-module",
                "it is a core module, which the router does not load",
            )
            .help(format!(
                "make a component of it: conductor policy build {}",
                subject.label
            )),
        ),
    }
    print(&report, args.json)?;
    Ok(if report.findings.is_empty() {
        Exit::Success
    } else {
        Exit::Failure
    })
}

/// Kind of a binary.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct InspectReport {
    file: String,
    layer: &'static str,
    bytes: usize,
    sha256: String,
    /// Source languages, as the compilers recorded them.
    languages: Vec<String>,
    /// Other tools that made it.
    made_by: Vec<String>,
    exports: Vec<Item>,
    imports: Vec<Item>,
    /// Set for a core module that names the component that it is meant for.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_component_type: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compiled_us: Option<f64>,
    #[serde(flatten)]
    policy: Option<InspectedPolicy>,
    /// Parameters, if it describes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Vec<ParameterRow>>,
    findings: Vec<Diagnostic>,
}

/// An import or export.
#[derive(Debug, Serialize)]
struct Item {
    name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    functions: Vec<String>,
}

/// Manifest.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct InspectedPolicy {
    name: String,
    version: String,
    request_features: Vec<String>,
    candidate_features: Vec<String>,
    /// True if the router tokenizes prompts for it.
    needs_tokens: bool,
    /// True if it queries the prefix index.
    needs_prefix_index: bool,
    /// True if it places both legs of a split request in one call.
    places_pairs: bool,
    /// True if a pipeline may have it as a scorer.
    scores: bool,
    /// Kinds of events that it receives; none if it receives none.
    events: Option<Vec<String>>,
    /// True if it receives ticks.
    ticks: bool,
}

impl InspectReport {
    fn of(subject: &ComponentFile, anatomy: Anatomy) -> Self {
        let made_by = |is_language: bool| {
            let producers = anatomy.producers.iter();
            let wanted = producers.filter(move |producer| (producer.field == "language") == is_language);
            wanted
                .map(|producer| {
                    format!("{} {}", producer.name, producer.version)
                        .trim_end()
                        .to_owned()
                })
                .collect()
        };
        Self {
            file: subject.label.clone(),
            layer: match anatomy.layer {
                Layer::Component => "component",
                Layer::Module => "core module",
            },
            bytes: subject.bytes.len(),
            sha256: subject.sha256(),
            languages: made_by(true),
            made_by: made_by(false),
            has_component_type: (anatomy.layer == Layer::Module).then_some(anatomy.has_component_type),
            exports: anatomy.exports.into_iter().map(Item::bare).collect(),
            imports: anatomy.imports.into_iter().map(Item::bare).collect(),
            compiled_us: None,
            policy: None,
            parameters: None,
            findings: vec![],
        }
    }

    /// Facts that only the runtime finds.
    fn inspect_component(&mut self, subject: &ComponentFile, given: &GivenSettings) -> anyhow::Result<()> {
        let engine = engine()?;
        let inspected = match engine.inspect(&subject.bytes) {
            Ok(inspected) => inspected,
            Err(error) => {
                self.findings = Diagnostic::not_loaded(&error, given.configured.as_ref());
                return Ok(());
            }
        };
        let Inspection {
            imports,
            exports,
            mismatches,
            compiled_in,
        } = inspected;
        self.imports = imports.into_iter().map(Item::from).collect();
        self.exports = exports.into_iter().map(Item::from).collect();
        self.compiled_us = Some(micros(compiled_in));
        if let Some(mismatches) = mismatches {
            let mismatches = mismatches.as_slice().iter();
            let findings =
                mismatches.map(|mismatch| Diagnostic::error("other-contract", mismatch.to_string()));
            self.findings.extend(findings);
            return Ok(());
        }
        match engine.describe(&subject.bytes, &given.settings) {
            Ok(description) => {
                let parameters = description.parameters.as_deref();
                self.parameters = parameters.map(ParameterRow::all);
                self.policy = Some(description.into());
            }
            Err(error) => {
                // The parameters help most where one is missing.
                let parameters = error.param_faults().map(|faults| faults.parameters.as_slice());
                self.parameters = parameters.map(ParameterRow::all);
                self.findings
                    .extend(Diagnostic::not_loaded(&error, given.configured.as_ref()));
            }
        }
        Ok(())
    }
}

impl Item {
    fn bare(name: String) -> Self {
        Self {
            name,
            functions: vec![],
        }
    }
}

impl From<ComponentInterface> for Item {
    fn from(interface: ComponentInterface) -> Self {
        let ComponentInterface { name, functions } = interface;
        Self { name, functions }
    }
}

impl From<DescribedPolicy> for InspectedPolicy {
    fn from(description: DescribedPolicy) -> Self {
        Self {
            scores: description.scores_singly(),
            name: description.manifest.name,
            version: description.manifest.version,
            request_features: description.request_features,
            candidate_features: description.candidate_features,
            needs_tokens: description.features.needs_tokens(),
            needs_prefix_index: description.features.needs_prefix(),
            places_pairs: description.features.pairs(),
            events: description.events,
            ticks: description.ticks,
        }
    }
}

impl fmt::Display for InspectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<(&str, String)> = vec![
            ("file", self.file.clone()),
            ("layer", self.layer.to_owned()),
            ("size", format!("{} ({} bytes)", size(self.bytes), self.bytes)),
            ("sha256", self.sha256.clone()),
            ("language", or_none(&self.languages, "unknown")),
            ("made by", or_none(&self.made_by, "unknown")),
        ];
        lines.extend(headed("exports", &self.exports));
        lines.extend(headed("imports", &self.imports));
        if let Some(has) = self.has_component_type {
            lines.push((
                "type",
                if has {
                    "carries its component type"
                } else {
                    "carries no component type"
                }
                .to_owned(),
            ));
        }
        if let Some(policy) = &self.policy {
            lines.extend(policy.lines());
        }
        for (head, line) in lines {
            writeln!(f, "{}", format!("{head:10} {line}").trim_end())?;
        }
        if let Some(parameters) = &self.parameters {
            f.write_str(&parameters::shown(parameters))?;
        }
        self.findings.iter().try_for_each(|finding| finding.fmt(f))
    }
}

impl InspectedPolicy {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let yes = |yes: bool, what: &str| format!("{}: {what}", if yes { "yes" } else { "no" });
        vec![
            ("policy", format!("{} {}", self.name, self.version)),
            (
                "request",
                or_none(&self.request_features, "no numbers of the request"),
            ),
            ("candidate", or_none(&self.candidate_features, "no columns")),
            (
                "tokens",
                yes(self.needs_tokens, "whether prompts are tokenized for it"),
            ),
            (
                "index",
                yes(self.needs_prefix_index, "queries of the prefix index"),
            ),
            (
                "pairs",
                yes(
                    self.places_pairs,
                    "whether it places both legs of a split request in one call",
                ),
            ),
            (
                "scorer",
                yes(self.scores, "whether a pipeline may have it as a scorer"),
            ),
            (
                "events",
                or_none(self.events.as_deref().unwrap_or_default(), "none"),
            ),
            ("tick", yes(self.ticks, "whether it works by the clock")),
        ]
    }
}

fn or_none(words: &[String], none: &str) -> String {
    if words.is_empty() {
        none.to_owned()
    } else {
        words.join(", ")
    }
}

/// Returns one line an item, the head on the first only.
fn headed(head: &'static str, items: &[Item]) -> Vec<(&'static str, String)> {
    let line = |item: &Item| match item.functions.as_slice() {
        [] => item.name.clone(),
        functions => format!("{}: {}", item.name, functions.join(", ")),
    };
    let heads = std::iter::once(head).chain(std::iter::repeat(""));
    let lines: Vec<_> = heads.zip(items.iter().map(line)).collect();
    if lines.is_empty() {
        vec![(head, "none".to_owned())]
    } else {
        lines
    }
}
