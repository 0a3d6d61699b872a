//! Deadlines of requests: a step within one, and the deadline of a response that its handler leaves for its connection.

use std::time::Instant;

use crate::base::reply::Refusal;

/// Response extension: time by which the client must have read the response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseDeadline(pub(crate) Instant);

/// Returns the result of a step, unless the deadline passes before its end.
pub(crate) async fn within<T>(
    deadline: Option<tokio::time::Instant>,
    step: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let Some(deadline) = deadline else {
        return step.await;
    };
    // A future that is ready would not be timed out.
    if deadline <= tokio::time::Instant::now() {
        return Err(Refusal::RequestTimeout);
    }
    let step = tokio::time::timeout_at(deadline, step).await;
    step.unwrap_or(Err(Refusal::RequestTimeout))
}
