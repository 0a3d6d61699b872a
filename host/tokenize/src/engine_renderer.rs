//! Renderers of engines: they render the chats of some models by code of their own, whatever chat template the folder
//! has.

use std::fmt;

use serde::Deserialize;

use crate::chat_engine::ChatEngine;
use crate::files::Files;

/// Architectures with a renderer of their own in vLLM.
const ARCHITECTURES: [&str; 8] = [
    "DeepseekV32ForCausalLM",
    "DeepseekV4ForCausalLM",
    "DeepseekV4ForConditionalGeneration",
    "DeepseekV41ForCausalLM",
    "InklingForCausalLM",
    "InklingForConditionalGeneration",
    "KimiK3ForConditionalGeneration",
    "MoonshotKimiaForCausalLM",
];

/// Parts of the names of such architectures in SGLang.
const IN_SGLANG: [&str; 3] = ["DeepseekV4", "InklingForConditionalGeneration", "KimiK3"];

/// Code of an engine that renders a model's chats in place of a chat template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineRenderer {
    /// Harmony, for gpt-oss. The router renders it too (`harmony`), unless its tokenizer is unsuitable.
    Harmony,
    /// `mistral-common`, for folders with Mistral's own files.
    MistralCommon,
    /// The renderer of an architecture.
    OfArchitecture(&'static str),
}

impl fmt::Display for EngineRenderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Harmony => f.write_str("Harmony, the format of gpt-oss"),
            Self::MistralCommon => f.write_str("mistral-common, since the folder has Mistral's own files"),
            Self::OfArchitecture(name) => write!(f, "the renderer of {name}"),
        }
    }
}

/// Relevant fields of `config.json`.
#[derive(Debug, Default, Deserialize)]
struct ModelConfig {
    model_type: Option<String>,
    architectures: Option<Vec<String>>,
}

impl EngineRenderer {
    /// Returns the renderer of a model; `None` for models whose chat template the engine renders. A configured template
    /// means an engine that is started with `--tokenizer-mode hf`.
    pub(crate) fn of(files: &Files, engine: ChatEngine) -> Option<Self> {
        let json = files.model_config.as_deref().unwrap_or_default();
        // The tokenizer does not need this file.
        let config: ModelConfig = serde_json::from_slice(json).unwrap_or_default();
        if engine == ChatEngine::Vllm && config.model_type.as_deref() == Some("gpt_oss") {
            return Some(Self::Harmony);
        }
        if files.only_these_templates {
            return None;
        }
        if files.has_mistral_format {
            return Some(Self::MistralCommon);
        }
        let listed = config.architectures.unwrap_or_default();
        let own = match engine {
            ChatEngine::Vllm => ARCHITECTURES
                .into_iter()
                .find(|name| listed.iter().any(|listed| listed == name)),
            ChatEngine::SgLang => IN_SGLANG
                .into_iter()
                .find(|part| listed.iter().any(|listed| listed.contains(part))),
        };
        own.map(Self::OfArchitecture)
    }
}
