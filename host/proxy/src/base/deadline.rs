//! Deadline of a response, which its handler leaves for its connection.

use std::time::Instant;

/// Response extension: time by which the client must have read the response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseDeadline(pub(crate) Instant);
