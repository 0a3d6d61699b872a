//! YAML of llm-d's endpoint picker, as a pipeline.

use std::fmt::Write as _;

use mooncake_compat::quoted;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::draft::{ConfigDraft, ImportedText};

/// Longest text, in bytes.
const LONGEST: usize = 1 << 20;

/// YAML that is no configuration of the endpoint picker.
#[derive(Debug, Error)]
pub enum PickerError {
    /// The text is too long.
    #[error("failed to import `{0}`: it has more than 1 MiB")]
    TooLong(String),
    /// The text is another kind of document.
    #[error("failed to import `{name}`: it is no EndpointPickerConfig: {cause}")]
    Yaml {
        /// Name of the file.
        name: String,
        /// Cause, with its place.
        cause: String,
    },
}

/// The document.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PickerDocument {
    #[serde(default)]
    plugins: Vec<PickerPlugin>,
    #[serde(default)]
    scheduling_profiles: Vec<PickerProfile>,
}

/// Plugin of the document.
#[derive(Debug, Deserialize)]
struct PickerPlugin {
    name: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    parameters: Value,
}

/// Profile of the document.
#[derive(Debug, Deserialize)]
struct PickerProfile {
    name: String,
    #[serde(default)]
    plugins: Vec<PluginReference>,
}

/// Reference of a profile to a plugin.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PluginReference {
    plugin_ref: String,
    weight: Option<f64>,
}

/// Meaning of a plugin.
enum PluginMeaning {
    /// Scorer, as the members of a table and the factor of its weight.
    Scorer(&'static str, f64),
    /// Policy that decides alone.
    Policy(&'static str),
    /// Value of `pick`.
    Pick(&'static str),
    /// Requests are split.
    Split,
    /// Nothing is needed, or there is no equivalent.
    Note(&'static str),
}

/// Translates the text of a file. Messages call it `name`.
///
/// # Errors
/// [`PickerError`].
pub fn import_picker(name: &str, text: &str) -> Result<ImportedText, PickerError> {
    if text.len() > LONGEST {
        return Err(PickerError::TooLong(name.to_owned()));
    }
    let document: PickerDocument = serde_saphyr::from_str(text).map_err(|error| PickerError::Yaml {
        name: name.to_owned(),
        cause: error.to_string(),
    })?;
    let mut draft = ConfigDraft::default();
    let mut pipeline = PipelineDraft::default();
    let references = references(&document, &mut draft);
    for reference in references {
        let plugin = document
            .plugins
            .iter()
            .find(|plugin| plugin.is_called(&reference.plugin_ref));
        match plugin {
            Some(plugin) => pipeline.add(plugin, reference.weight, &mut draft),
            None => draft
                .notes
                .push(format!("`{}` is no plugin of this file", reference.plugin_ref)),
        }
    }
    // A handler of profiles is in no profile.
    for plugin in &document.plugins {
        if plugin.kind.ends_with("-handler") || plugin.kind.ends_with("-decider") {
            pipeline.add(plugin, None, &mut draft);
        }
    }
    pipeline.finish(&mut draft);
    Ok(draft.finish("llm-d's endpoint picker"))
}

/// Returns the references of the profile that decides on whole requests or decode workers.
fn references<'d>(document: &'d PickerDocument, draft: &mut ConfigDraft) -> Vec<&'d PluginReference> {
    let profiles = &document.scheduling_profiles;
    let chosen = profiles
        .iter()
        .find(|profile| profile.name == "decode")
        .or(profiles.first());
    for profile in profiles {
        if chosen.is_some_and(|chosen| chosen.name != profile.name) {
            draft.notes.push(format!(
                "the profile `{}` is left out: write its scorers as a second pipeline, and name it with \
                 `prefill-policy` of the route",
                profile.name
            ));
        }
    }
    chosen
        .map(|profile| profile.plugins.iter().collect())
        .unwrap_or_default()
}

impl PickerPlugin {
    fn is_called(&self, reference: &str) -> bool {
        self.name.as_deref().unwrap_or(&self.kind) == reference
    }

    fn meaning(&self) -> PluginMeaning {
        use PluginMeaning::{Note, Pick, Policy, Scorer, Split};
        match &*self.kind {
            "precise-prefix-cache-scorer" | "prefix-cache-scorer" => Scorer("policy = \"tier-weight\"", 1.0),
            "queue-scorer" => Scorer("feature = \"engine.waiting\"", -1.0),
            "active-request-scorer" | "load-aware-scorer" | "running-requests-size-scorer" => {
                Scorer("feature = \"load.requests\"", -1.0)
            }
            "kv-cache-utilization-scorer" => Scorer("feature = \"engine.kv-usage\"", -1.0),
            "lora-affinity-scorer" => Scorer("policy = \"lora-affinity\"", 1.0),
            "session-affinity-scorer" => Policy("session-affinity"),
            "latency-scorer" | "slo-headroom-tier-filter" => Policy("predicted-latency"),
            "max-score-picker" => Pick("max"),
            "weighted-random-picker" => Pick("softmax"),
            "random-picker" => Policy("random"),
            "prefill-filter" | "decode-filter" => {
                Note("not needed: the `role` of workers, or `role-label` of [discovery.NAME], says it")
            }
            "by-label" | "by-label-selector" => Note("add `filters` with its `label` to the pipeline"),
            "single-profile-handler" => Note("not needed: a route has one policy"),
            "disagg-profile-handler" | "pd-profile-handler" | "prefix-based-pd-decider" => Split,
            _ => Note("no equivalent known: see the features of `conductor policy features`"),
        }
    }
}

/// Pipeline of a draft.
#[derive(Debug, Default)]
struct PipelineDraft {
    /// Members of their tables, with weights.
    scorers: Vec<(&'static str, f64)>,
    pick: Option<&'static str>,
    policy: Option<&'static str>,
}

impl PipelineDraft {
    fn add(&mut self, plugin: &PickerPlugin, weight: Option<f64>, draft: &mut ConfigDraft) {
        // It predicts caches from the prompts that were sent, without KV events.
        if plugin.kind == "prefix-cache-scorer" {
            draft.assume_caches();
        }
        match plugin.meaning() {
            PluginMeaning::Scorer(members, factor) => {
                let weight = weight.unwrap_or(1.0) * factor;
                // Several plugins may be one scorer here.
                let mut known = self.scorers.iter_mut();
                match known.find(|(known, _)| *known == members) {
                    Some((_, sum)) => *sum += weight,
                    None => self.scorers.push((members, weight)),
                }
            }
            PluginMeaning::Policy(policy) => {
                if let Some(other) = self.policy.replace(policy).filter(|other| *other != policy) {
                    draft.notes.push(format!(
                        "`{other}` is left out: a route has one policy, here `{policy}`"
                    ));
                }
            }
            PluginMeaning::Pick(pick) => self.pick = Some(pick),
            PluginMeaning::Split => draft.set(("pools.main.pd", "dialect"), quoted("auto")),
            PluginMeaning::Note(note) => draft.notes.push(format!("`{}`: {note}", plugin.kind)),
        }
        let has_parameters = plugin
            .parameters
            .as_object()
            .is_some_and(|members| !members.is_empty());
        if has_parameters {
            draft.notes.push(format!(
                "`{}`: its parameters are not translated: see the README of the policy or the engine's events",
                plugin.kind
            ));
        }
    }

    fn finish(self, draft: &mut ConfigDraft) {
        if let Some(policy) = self.policy {
            if !self.scorers.is_empty() {
                draft.notes.push(format!(
                    "`{policy}` decides alone: the other scorers are left out"
                ));
            }
            draft.policies.push(("policy", policy.to_owned()));
            return;
        }
        let (scorers, weightless): (Vec<_>, Vec<_>) =
            self.scorers.iter().partition(|(_, weight)| *weight != 0.0);
        for (members, _) in weightless {
            draft
                .notes
                .push(format!("the scorer `{members}` is left out: its weight is 0"));
        }
        if scorers.is_empty() {
            return;
        }
        let scorers = scorers.iter();
        let scorers: Vec<String> = scorers
            .map(|(members, weight)| format!("{{ {members}, weight = {weight:?} }}"))
            .collect();
        let scorers = scorers.join(", ");
        let _ = write!(
            draft.more,
            "\n[policies.imported.pipeline]\nscorers = [{scorers}]\n"
        );
        match self.pick {
            Some("softmax") => draft.more.push_str("pick = \"softmax\"\ntemperature = 0.1\n"),
            Some(pick) => {
                let _ = writeln!(draft.more, "pick = {}", quoted(pick));
            }
            None => {}
        }
        draft.policies.push(("policy", "imported".to_owned()));
        draft.notes.push(
            "a pipeline scales each scorer to 0 to 1 among the candidates of a request, where llm-d's scorer of \
             prefixes is a share of the prompt: compare the weights with `conductor simulate` or a shadow"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: prefix-cache-scorer
  parameters:
    hashBlockSize: 64
- type: queue-scorer
- type: decode-filter
- type: max-score-picker
- name: handler
  type: single-profile-handler
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: decode-filter
  - pluginRef: prefix-cache-scorer
    weight: 2
  - pluginRef: queue-scorer
    weight: 1.5
  - pluginRef: max-score-picker
  - pluginRef: absent
";

    #[test]
    fn scorers_and_picker_become_a_pipeline() {
        let imported = import_picker("epp.yaml", FILE).unwrap();
        let expected = "[policies.imported.pipeline]\nscorers = [{ policy = \"tier-weight\", weight = 2.0 }, \
                        { feature = \"engine.waiting\", weight = -1.5 }]\npick = \"max\"\n";
        assert!(imported.toml.contains(expected), "{}", imported.toml);
        assert!(
            imported.toml.contains("[pools.main.assume-cache]"),
            "{}",
            imported.toml
        );
        let notes = imported.notes.join("\n");
        for part in [
            "`decode-filter`: not needed",
            "`absent` is no plugin",
            "parameters are not translated",
            "scales each scorer to 0 to 1",
            "set `tokens` of [pools.main.assume-cache]",
        ] {
            assert!(notes.contains(part), "{part}\n{notes}");
        }
    }

    #[test]
    fn plugins_that_are_one_scorer_are_summed_and_those_without_weight_are_left_out() {
        let file = "plugins:\n- type: load-aware-scorer\n- type: active-request-scorer\n- type: queue-scorer\n\
                    schedulingProfiles:\n- name: default\n  plugins:\n  - pluginRef: load-aware-scorer\n    weight: 2\n\
                    \x20 - pluginRef: active-request-scorer\n  - pluginRef: queue-scorer\n    weight: 0\n";
        let imported = import_picker("epp.yaml", file).unwrap();
        let expected = "scorers = [{ feature = \"load.requests\", weight = -3.0 }]\n";
        assert!(imported.toml.contains(expected), "{}", imported.toml);
        let notes = imported.notes.join("\n");
        assert!(
            notes.contains("`feature = \"engine.waiting\"` is left out"),
            "{notes}"
        );
    }

    #[test]
    fn of_two_policies_the_one_that_is_left_out_is_named() {
        let file = "plugins:\n- type: session-affinity-scorer\n- type: random-picker\n\
                    schedulingProfiles:\n- name: default\n  plugins:\n  - pluginRef: session-affinity-scorer\n\
                    \x20 - pluginRef: random-picker\n";
        let imported = import_picker("epp.yaml", file).unwrap();
        assert!(imported.toml.contains("policy = \"random\""), "{}", imported.toml);
        let notes = imported.notes.join("\n");
        assert!(notes.contains("`session-affinity` is left out"), "{notes}");
        assert!(!imported.toml.contains("assume-cache"), "{}", imported.toml);
    }

    #[test]
    fn two_profiles_are_split_and_the_second_is_named() {
        let file = "plugins:\n- type: disagg-profile-handler\n- type: session-affinity-scorer\n\
                    schedulingProfiles:\n- name: prefill\n- name: decode\n  plugins:\n  - pluginRef: session-affinity-scorer\n";
        let imported = import_picker("epp.yaml", file).unwrap();
        assert!(imported.toml.contains("dialect = \"auto\""), "{}", imported.toml);
        assert!(
            imported.toml.contains("policy = \"session-affinity\""),
            "{}",
            imported.toml
        );
        assert!(
            imported.notes.join("\n").contains("`prefill` is left out"),
            "{:?}",
            imported.notes
        );
    }

    #[test]
    fn other_documents_are_refused_with_the_place() {
        let error = import_picker("epp.yaml", "plugins: 3\n").unwrap_err();
        assert!(error.to_string().contains("epp.yaml"), "{error}");
        assert!(import_picker("x", &"#".repeat(LONGEST + 1)).is_err());
    }
}
