//! `thinking` and `output_config` as a `reasoning_effort`.

use serde::Deserialize;

use super::{DisabledThinking, TemplateRules};
use crate::fields::Raw;

#[derive(Deserialize)]
struct Thinking {
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
    effort: Option<Effort>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Effort {
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// Returns the effort, as JSON. Disabled thinking counts more than the effort that is configured. The outer none: it cannot be
/// told; the inner: there is none.
pub(super) fn effort(
    thinking: Option<Raw<'_>>,
    output_config: Option<Raw<'_>>,
    rules: Option<TemplateRules>,
) -> Option<Option<&'static str>> {
    let config: Option<OutputConfig> = read(output_config)?;
    let thinking: Option<Thinking> = read(thinking)?;
    if thinking.is_some_and(|thinking| thinking.kind == ThinkingKind::Disabled) {
        return Some(Some(match rules?.disabled_thinking {
            DisabledThinking::None => "\"none\"",
            DisabledThinking::Low => "\"low\"",
        }));
    }
    let effort = config.and_then(|config| config.effort);
    Some(effort.map(|effort| match effort {
        Effort::Low => "\"low\"",
        Effort::Medium => "\"medium\"",
        Effort::High => "\"high\"",
        Effort::Xhigh => "\"xhigh\"",
        Effort::Max => "\"max\"",
    }))
}

fn read<'a, T: Deserialize<'a>>(raw: Option<Raw<'a>>) -> Option<Option<T>> {
    match raw {
        None => Some(None),
        Some(raw) => serde_json::from_str(raw.get()).ok(),
    }
}
