//! Properties of a chat template that affect the conversion of a Messages request.

/// Properties of the engine's chat template that affect the conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateRules {
    /// The template accepts only leading system messages: later ones join the leading one.
    pub merges_system: bool,
    /// `reasoning_effort` of a request that disables thinking.
    pub disabled_thinking: DisabledThinking,
}

/// Effort that means no thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisabledThinking {
    /// `none`: the template supports it.
    None,
    /// `low`: the template refuses or ignores `none`.
    Low,
}
