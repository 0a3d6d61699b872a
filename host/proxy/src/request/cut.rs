//! End of the drain period for requests that have no answer yet.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use crate::base::readiness::Readiness;
use crate::base::reply::Refusal;

/// Returns the answer, or the refusal if the drain period ends before there is one. Cutting
/// wakes the tasks of all connections, so that each checks it.
pub(crate) async fn unless_cut<T>(
    readiness: &Readiness,
    mut answer: Pin<&mut impl Future<Output = Result<T, Refusal>>>,
) -> Result<T, Refusal> {
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Pending if readiness.is_cutting() => Poll::Ready(Err(Refusal::ShuttingDown)),
        polled => polled,
    })
    .await
}
