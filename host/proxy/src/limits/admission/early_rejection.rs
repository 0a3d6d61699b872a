//! Early rejection of requests whose predicted time to the first token or between tokens is too long.

use std::time::Duration;

use placement::{WorkerChoice, WorkerPlacement};

use super::admission_request::{AdmissionInput, AdmissionRequest, tbt_target, ttft_target};
use crate::base::reply::TooSlow;

/// Checks the predicted time to the first token of a request that has to wait: its age, `wait` in the queue, and the
/// prefill time on an idle worker.
pub(super) fn in_queue(
    input: &AdmissionInput<'_>,
    request: &AdmissionRequest,
    wait: Option<Duration>,
) -> Option<TooSlow> {
    let most = bearable(input, ttft_target(input.queue, input.objectives))?;
    let expected = input.arrived.elapsed() + wait? + request.runs;
    (expected > most).then_some(TooSlow::FirstToken)
}

/// Checks the predicted times of a placed request. An unknown prediction never rejects.
pub(super) fn placed(input: &AdmissionInput<'_>, placement: &WorkerPlacement) -> Option<TooSlow> {
    input.queue.admission.as_ref()?.spec.early_rejection?;
    let begins = placement.prefills.unwrap_or(placement.answers);
    if let Some(most) = bearable(input, ttft_target(input.queue, input.objectives)) {
        let first_token = first_token(input, begins);
        let expected = first_token.map(|after| input.arrived.elapsed() + after);
        if expected.is_some_and(|expected| expected > most) {
            return Some(TooSlow::FirstToken);
        }
    }
    let most = bearable(input, tbt_target(input))?;
    let between = between_tokens(input, placement.answers)?;
    (between > most).then_some(TooSlow::Tokens)
}

/// Returns the target multiplied by the tolerance factor. `None` if early rejection is off.
fn bearable(input: &AdmissionInput<'_>, target: Option<Duration>) -> Option<Duration> {
    let factor = input.queue.admission.as_ref()?.spec.early_rejection?;
    Some(target?.mul_f64(factor))
}

/// Predicts the time to the first token behind the prompts that wait at the worker.
fn first_token(input: &AdmissionInput<'_>, choice: WorkerChoice) -> Option<Duration> {
    let load = input.workers.members[choice.member].worker.load();
    let cached = choice.matched.unwrap_or(0);
    let costs = load.cost().read();
    let own = costs.prefill_ms(input.prompt_tokens.saturating_sub(cached), cached);
    millis(own + costs.token_ms() * load.read().prefill_tokens as f64)
}

fn between_tokens(input: &AdmissionInput<'_>, choice: WorkerChoice) -> Option<Duration> {
    let load = input.workers.members[choice.member].worker.load();
    let reading = load.read();
    let resident = reading.prompt_tokens.saturating_add(input.prompt_tokens.into());
    millis(load.cost().read().tbt_ms(reading.decoding + 1, resident))
}

/// Returns the time to the first token on the pool's fastest idle worker; zero while unknown.
pub(super) fn runs(input: &AdmissionInput<'_>) -> Duration {
    let prompt = input.prompt_tokens;
    let workers = input.workers.serving(input.model);
    let each = workers.filter_map(|member| millis(member.worker.load().cost().read().prefill_ms(prompt, 0)));
    each.min().unwrap_or_default()
}

fn millis(ms: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ms / 1e3).ok()
}
