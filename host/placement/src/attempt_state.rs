//! State of a request with regard to earlier decisions.

use routing::WorkerId;

/// State of a request with regard to earlier decisions.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttemptState<'a> {
    /// Number of decisions before this one.
    pub attempt: u32,
    /// Workers that are excluded: they failed at this request.
    pub tried: &'a [WorkerId],
    /// Set if the request is in the queue now.
    pub is_held: bool,
}
