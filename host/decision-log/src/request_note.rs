//! Facts of a recorded request, as its lines have them.

/// Facts of a request that do not change while it is recorded.
#[derive(Debug)]
pub(crate) struct RequestNote {
    /// Request id, truncated.
    pub(crate) id: String,
    /// Sequence number.
    pub(crate) seq: u64,
    /// Model, truncated.
    pub(crate) model: String,
    /// Path.
    pub(crate) path: Box<str>,
    /// Name of the pool.
    pub(crate) pool: Box<str>,
    /// Route, counted from 1.
    pub(crate) route: usize,
    /// Tokens of the prompt, if known.
    pub(crate) prompt_tokens: Option<u32>,
}
