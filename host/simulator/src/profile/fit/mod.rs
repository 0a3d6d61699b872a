//! Costs fitted to what a router recorded.
//!
//! A prompt's time is fitted to those that waited for nothing, a step's to the mean time between the tokens of answers.
//! Where no worker is ever idle, both are fitted together, since each prompt waits for steps of answers too.

mod lines;
mod steps;

use std::fmt;

use serde::Serialize;

pub use self::lines::FitQuality;
use self::lines::MeasuredStep;
use self::steps::{ALL_TERMS, AnswerSample, WorkerAnswers};
use super::FittedProfile;
use crate::trace::Recording;

/// Prompts that found their worker idle, from which on nothing else is looked at.
const ENOUGH: usize = 30;
/// Least share of the prompts that these are. The first few of a busy recording are not like the others: their prefixes
/// are cached nowhere yet.
const ENOUGH_SHARE: f64 = 0.05;
/// Least measured times that anything is fitted to.
const LEAST: usize = 10;

/// Fitted costs, and the quality of the fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The costs.
    pub profile: FittedProfile,
    /// Prompts to which the costs are fitted.
    pub from: FitFrom,
    /// Fit of the prompts' times.
    pub prompts: FitQuality,
    /// Fit of the times between tokens. `None` if too few were measured.
    pub steps: Option<FitQuality>,
}

/// Prompts of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FitFrom {
    /// Prompts that found their worker idle, and were alone on it until their first token.
    Idle,
    /// All, each from when the prompt before it on the same worker had its first token.
    AfterWaiting,
}

/// Error of too few measurements for a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "fit costs: {found} prompts have a time to first token and a count of cached tokens, and at least {LEAST} are needed"
)]
pub struct TooFew {
    /// Number of such prompts.
    pub found: usize,
}

/// Work of a worker's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepWork {
    /// Prompts, and beside them a token of each answer (chunked prefill).
    Both,
    /// One prompt, or a token of each answer.
    Either,
}

impl StepWork {
    /// Returns the steps of answers within the time of a prompt that followed another one at once, or came while
    /// answers were written. In the mean such a one waits for half a step.
    fn steps_of_answers(self, follows_another: bool) -> f64 {
        let beside = if self == Self::Both { 1.0 } else { 0.0 };
        beside + if follows_another { 0.0 } else { 0.5 }
    }
}

/// A prompt on the worker that computed it. Times are microseconds.
#[derive(Debug, Clone, Copy)]
struct Computed {
    from_us: u64,
    /// Unknown where the answer was not streamed.
    first_token_us: Option<u64>,
    /// Time at which the worker was done with the prompt.
    until_us: u64,
    /// Uncached and cached tokens; unknown where the worker did not report them.
    tokens: Option<(f64, f64)>,
}

impl Fit {
    /// Costs of a recording's workers, taken together, each with room for so many tokens.
    ///
    /// What a request took between the workers is in its prompt's time: a transfer takes no time of its own.
    ///
    /// # Errors
    /// [`TooFew`] where fewer than ten prompts were measured.
    pub fn of(recording: &Recording, kv_tokens: u64, work: StepWork) -> Result<Self, TooFew> {
        let by_worker = by_worker(recording);
        let answers: Vec<_> = (0..by_worker.len())
            .map(|worker| WorkerAnswers::of(recording, worker))
            .collect();
        let idle: Vec<MeasuredStep> = by_worker.iter().flat_map(|prompts| idle(prompts)).collect();
        let share = idle.len() as f64 / recording.trace.requests.len() as f64;
        let fitted = if idle.len() >= ENOUGH && share >= ENOUGH_SHARE {
            FittedCosts::of_idle(&idle, &answers)
        } else {
            let workers = by_worker.iter().zip(&answers);
            let waited: Vec<_> = workers
                .flat_map(|(prompts, answers)| after_waiting(prompts, answers, work))
                .collect();
            let too_few = TooFew { found: waited.len() };
            if waited.len() < LEAST {
                return Err(too_few);
            }
            FittedCosts::together(&waited, &answers)
        };
        let fitted = fitted.ok_or(TooFew { found: idle.len() })?;
        let profile = FittedProfile {
            prefill_ms: fitted.prefill_ms,
            transfer_ms: [0.0; 2],
            step_ms: fitted.step_ms,
            host_ms: 0.0,
            disk_ms: 0.0,
            kv_tokens,
            link_gbps: 1.0,
        };
        Ok(Self {
            profile,
            from: fitted.from,
            prompts: fitted.prompts,
            steps: fitted.steps,
        })
    }
}

/// Costs of prompts and steps, in the units of [`FittedProfile`].
#[derive(Debug)]
struct FittedCosts {
    from: FitFrom,
    prefill_ms: [f64; 3],
    prompts: FitQuality,
    step_ms: [f64; 3],
    steps: Option<FitQuality>,
}

impl FittedCosts {
    /// Fits prompts that waited for nothing, and then the steps.
    fn of_idle(prompts: &[MeasuredStep], answers: &[WorkerAnswers]) -> Option<Self> {
        // A prompt without a constant is nearer to the truth than one without a length.
        let ([fixed, uncached, cached], prompts) = lines::fit(prompts, 1)?;
        let prefill_ms = [fixed, 1e3 * uncached, 1e3 * cached];
        let (step_ms, steps) = steps::fit(answers, prefill_ms, LEAST);
        Some(Self {
            from: FitFrom::Idle,
            prefill_ms,
            prompts,
            step_ms,
            steps,
        })
    }

    /// Fits prompts and steps at once.
    fn together(prompts: &[MeasuredStep<ALL_TERMS>], answers: &[WorkerAnswers]) -> Option<Self> {
        let samples: Vec<AnswerSample> = answers.iter().flat_map(WorkerAnswers::samples).collect();
        let weighed: Vec<MeasuredStep<ALL_TERMS>> = samples.iter().map(weighed).collect();
        let fitted = lines::fit_terms(&[prompts, &weighed].concat(), 1)?;
        // The variance of weighted times is mostly that of the weights.
        let steps: Vec<MeasuredStep<ALL_TERMS>> = samples.iter().map(|sample| sample.step).collect();
        let [fixed, uncached, cached, step, by_request, by_token] = fitted.factors;
        Some(Self {
            from: FitFrom::AfterWaiting,
            prefill_ms: [fixed, 1e3 * uncached, 1e3 * cached],
            prompts: fitted.quality(prompts, 0),
            step_ms: [step, by_request, 1e3 * by_token],
            steps: (steps.len() >= LEAST).then(|| fitted.quality(&steps, prompts.len())),
        })
    }
}

/// Returns an answer's steps as a sample beside those of prompts. The error of a mean falls with the root of their
/// number.
fn weighed(sample: &AnswerSample) -> MeasuredStep<ALL_TERMS> {
    let weight = sample.steps.sqrt();
    MeasuredStep {
        terms: sample.step.terms.map(|term| weight * term),
        took: weight * sample.step.took,
    }
}

impl fmt::Display for FitFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "prompts that found their worker idle",
            Self::AfterWaiting => "prompts, from when the one before on the same worker had its first token",
        })
    }
}

/// Returns every worker's prompts, in the order of their dispatch.
fn by_worker(recording: &Recording) -> Vec<Vec<Computed>> {
    let mut by_worker = vec![Vec::new(); recording.measured.workers.len()];
    let requests = recording.trace.requests.iter().zip(&recording.measured.courses);
    for ((request, course), has_cached) in requests.zip(&recording.has_cached) {
        let (Some(prefill), Some(from_us), Some(finished_us)) =
            (course.prefill, course.dispatched_us, course.finished_us)
        else {
            continue;
        };
        let is_split = course.worker != Some(prefill);
        let cached = f64::from(course.cached_tokens);
        let prompts: &mut Vec<Computed> = &mut by_worker[prefill];
        prompts.push(Computed {
            from_us,
            first_token_us: course.first_token_us,
            until_us: course.first_token_us.filter(|_| is_split).unwrap_or(finished_us),
            tokens: has_cached.then_some((f64::from(request.prompt_tokens) - cached, cached)),
        });
    }
    for prompts in &mut by_worker {
        prompts.sort_by_key(|prompt| prompt.from_us);
    }
    by_worker
}

/// Returns the prompts of one worker that were alone on it until their first token.
fn idle(prompts: &[Computed]) -> Vec<MeasuredStep> {
    let mut busy_until_us = 0;
    let mut samples = Vec::new();
    for (at, prompt) in prompts.iter().enumerate() {
        let was_idle = at == 0 || busy_until_us <= prompt.from_us;
        busy_until_us = busy_until_us.max(prompt.until_us);
        let next_us = prompts.get(at + 1).map_or(u64::MAX, |next| next.from_us);
        if was_idle && prompt.first_token_us.is_some_and(|first| first <= next_us) {
            samples.extend(prompt.sample(prompt.from_us));
        }
    }
    samples
}

/// Returns the prompts of one worker, without their waiting time for the prompts before them, and with the steps of
/// answers that they wait for.
fn after_waiting(
    prompts: &[Computed],
    answers: &WorkerAnswers,
    work: StepWork,
) -> Vec<MeasuredStep<ALL_TERMS>> {
    let mut computed_us = 0;
    let mut samples = Vec::new();
    for prompt in prompts {
        let from_us = prompt.from_us.max(computed_us);
        let (batch, resident) = answers.at(from_us);
        let steps = match batch > 0.0 {
            true => work.steps_of_answers(computed_us > prompt.from_us),
            false => 0.0,
        };
        samples.extend(prompt.sample(from_us).map(|sample| {
            let [one, uncached, cached] = sample.terms;
            MeasuredStep {
                terms: [one, uncached, cached, steps, steps * batch, steps * resident],
                took: sample.took,
            }
        }));
        // Of an answer that was not streamed its end alone is known.
        computed_us = computed_us.max(prompt.first_token_us.unwrap_or(prompt.until_us));
    }
    samples
}

impl Computed {
    /// Returns the time from then on, in milliseconds. `None` where that is not known, or it was overtaken.
    fn sample(&self, from_us: u64) -> Option<MeasuredStep> {
        let (uncached, cached) = self.tokens?;
        let took_us = self
            .first_token_us?
            .checked_sub(from_us)
            .filter(|took| *took > 0)?;
        Some(MeasuredStep {
            terms: [1.0, uncached, cached],
            took: took_us as f64 / 1e3,
        })
    }
}

#[cfg(test)]
mod tests;
