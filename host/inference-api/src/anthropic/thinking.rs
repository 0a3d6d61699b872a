//! `thinking` and `output_config` as a `reasoning_effort`.

use serde::Deserialize;

use super::rules::{DisabledThinking, TemplateRules};
use crate::fields::Raw;

#[derive(Deserialize)]
struct ThinkingConfig {
    #[serde(rename = "type")]
    kind: ThinkingKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ThinkingKind {
    Enabled,
    Disabled,
    Adaptive,
}

#[derive(Deserialize)]
struct OutputConfig {
    #[serde(default)]
    effort: Option<EffortLevel>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EffortLevel {
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// Returns the effort as JSON. Disabled thinking takes precedence over a configured effort. The outer `None`: it is
/// unknown; the inner: it is absent.
pub(super) fn effort(
    thinking: Option<Raw<'_>>,
    output_config: Option<Raw<'_>>,
    rules: Option<TemplateRules>,
) -> Option<Option<&'static str>> {
    let config: Option<OutputConfig> = read(output_config)?;
    let thinking: Option<ThinkingConfig> = read(thinking)?;
    if thinking.is_some_and(|thinking| thinking.kind == ThinkingKind::Disabled) {
        return Some(Some(match rules?.disabled_thinking {
            DisabledThinking::None => "\"none\"",
            DisabledThinking::Low => "\"low\"",
        }));
    }
    let effort = config.and_then(|config| config.effort);
    Some(effort.map(|effort| match effort {
        EffortLevel::Low => "\"low\"",
        EffortLevel::Medium => "\"medium\"",
        EffortLevel::High => "\"high\"",
        EffortLevel::Xhigh => "\"xhigh\"",
        EffortLevel::Max => "\"max\"",
    }))
}

fn read<'a, T: Deserialize<'a>>(raw: Option<Raw<'a>>) -> Option<Option<T>> {
    match raw {
        None => Some(None),
        Some(raw) => serde_json::from_str(raw.get()).ok(),
    }
}
