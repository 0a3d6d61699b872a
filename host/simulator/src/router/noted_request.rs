//! A request as events name it.

/// A request as events name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotedRequest {
    /// Its place in the trace.
    pub(super) number: usize,
    /// Hash of its session.
    pub(super) session: Option<u64>,
}
