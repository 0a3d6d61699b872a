//! Refusing at once what would come too late anyway: by the time to the first token, or between tokens, that is predicted.

use std::time::Duration;

use placement::{WorkerChoice, WorkerPlacement};

use super::wish::{AdmissionRequest, tbt_target, ttft_target};
use crate::base::reply::TooSlow;
use crate::request::context::RequestContext;

/// Whether too long a wait before its turn is to be expected of a request that has to wait: `wait` in the queue, and then the time
/// to its first token on an idle worker.
pub(super) fn in_queue(
    request: &RequestContext,
    wish: &AdmissionRequest,
    wait: Option<Duration>,
) -> Option<TooSlow> {
    let most = bearable(request, ttft_target(request))?;
    let expected = request.arrived.elapsed() + wait? + wish.runs;
    (expected > most).then_some(TooSlow::FirstToken)
}

/// Whether it would be too slow where it is placed. What is not known yet is never too slow.
pub(super) fn placed(request: &RequestContext, placement: &WorkerPlacement) -> Option<TooSlow> {
    request.pool().admission.as_ref()?.spec.early_rejection?;
    let begins = placement.prefills.unwrap_or(placement.answers);
    if let Some(most) = bearable(request, ttft_target(request)) {
        let first_token = first_token(request, begins);
        let expected = first_token.map(|after| request.arrived.elapsed() + after);
        if expected.is_some_and(|expected| expected > most) {
            return Some(TooSlow::FirstToken);
        }
    }
    let most = bearable(request, tbt_target(request))?;
    let between = between_tokens(request, placement.answers)?;
    (between > most).then_some(TooSlow::Tokens)
}

/// The target times what may be missed of it; none where nothing is refused.
fn bearable(request: &RequestContext, target: Option<Duration>) -> Option<Duration> {
    let factor = request.pool().admission.as_ref()?.spec.early_rejection?;
    Some(target?.mul_f64(factor))
}

/// Behind what waits at that worker.
fn first_token(request: &RequestContext, seat: WorkerChoice) -> Option<Duration> {
    let load = request.pool().workers.members[seat.member].worker.load();
    let cached = seat.matched.unwrap_or(0);
    let own = load
        .cost()
        .prefill_ms(request.prompt_tokens().saturating_sub(cached), cached);
    millis(own + load.cost().token_ms() * load.read().prefill_tokens as f64)
}

fn between_tokens(request: &RequestContext, seat: WorkerChoice) -> Option<Duration> {
    let load = request.pool().workers.members[seat.member].worker.load();
    let reading = load.read();
    let resident = reading
        .prompt_tokens
        .saturating_add(request.prompt_tokens().into());
    millis(load.cost().tbt_ms(reading.decoding + 1, resident))
}

/// The time to its first token on the worker of the pool that would be the fastest if it were idle; zero while unknown.
pub(super) fn runs(request: &RequestContext) -> Duration {
    let prompt = request.prompt_tokens();
    let workers = request.pool().workers.serving(&request.model);
    let each = workers.filter_map(|member| millis(member.worker.load().cost().prefill_ms(prompt, 0)));
    each.min().unwrap_or_default()
}

fn millis(ms: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ms / 1e3).ok()
}
