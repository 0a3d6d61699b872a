//! Request on one worker: the whole of it is sent there.

use placement::WorkerChoice;

use crate::dispatch::answer_check as check;
use crate::dispatch::attempt::{self, AttemptSpec, BegunAnswer};
use crate::dispatch::attempt_error::{AttemptError, AttemptFailure};
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::retry;

/// Sends the request to the worker. `tries` counts this attempt.
pub(crate) async fn send(
    request: &InferenceRequest,
    choice: WorkerChoice,
    tries: u32,
) -> Result<Box<BegunAnswer>, AttemptFailure> {
    let pool = request.pool();
    let mut sent = attempt::send(request, AttemptSpec::whole(request, choice)).await;
    let is_not_served = match &mut sent {
        Ok(answer) if check::may_be_not_served(request, answer.response.status()) => {
            // On the heap: it is rare, and every request would carry its room.
            Box::pin(check::is_not_served(request, answer)).await
        }
        _ => false,
    };
    let sent = match sent {
        Ok(answer) if is_not_served => Err(Box::pin(check::refused(request, &pool.workers, answer)).await),
        // A single worker in place of a pair is retried elsewhere, as a leg is.
        Ok(answer) if pool.pd.is_some() => Box::pin(check::accept(request, answer)).await,
        Ok(answer) if retry::charge_status_retry(request, answer.response.status(), tries) => {
            Err(Box::pin(check::refused(request, &pool.workers, answer))
                .await
                .held_back())
        }
        sent => sent.map_err(AttemptError::from),
    };
    sent.map_err(|error| AttemptFailure {
        blamed: Some(pool.workers.members[choice.member].worker.id()),
        suspected: None,
        has_prompt: !error.left_no_prompt(),
        error,
    })
}
