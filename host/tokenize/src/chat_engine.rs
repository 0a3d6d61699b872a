//! Engines whose conversion of chats is known here.

/// Engine that converts a chat before its template renders it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ChatEngine {
    /// vLLM 0.32.
    #[default]
    Vllm,
    /// SGLang 0.5.23.
    SgLang,
}
