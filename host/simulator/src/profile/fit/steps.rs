//! Answers that a worker wrote, and the fit of a batch step's cost to the mean times between their tokens.

use super::lines::{self, FitQuality, MeasuredStep, median};
use crate::outcome::RequestOutcome;
use crate::request::Request;
use crate::trace::Recording;

/// Answers with fewer tokens are no sample of a step.
const LEAST_TOKENS: u32 = 4;

/// Terms of a prompt: 1, and its uncached and cached tokens.
pub(super) type PromptTerms = [f64; 3];
/// Terms of prompts, followed by those of a step: 1, the requests in it, and the tokens that they hold.
pub(super) const ALL_TERMS: usize = 6;

/// An answer that a worker wrote. Times are microseconds.
struct RecordedAnswer {
    from_us: u64,
    until_us: u64,
    /// Held for it in the mean.
    tokens: f64,
    /// Steps, if there are enough of them to be a sample.
    steps: Option<f64>,
}

/// Mean time between the tokens of an answer, with the prompts computed meanwhile.
pub(super) struct AnswerSample {
    /// Time and terms of one step.
    pub(super) step: MeasuredStep<ALL_TERMS>,
    /// Number of its steps.
    pub(super) steps: f64,
}

/// Answers of one worker.
pub(super) struct WorkerAnswers {
    answers: Vec<RecordedAnswer>,
    /// Number of answers being written.
    batch: Area,
    /// Tokens held by them.
    resident: Area,
    /// Sums of the terms of all prompts until the time of each first token.
    prompts: Vec<(u64, PromptTerms)>,
}

/// The time that passed on a worker with something, summed up from the beginning to each change.
#[derive(Default)]
struct Area {
    /// When it changed, what it was from then on, and the area until then.
    changes: Vec<(u64, f64, f64)>,
}

/// Returns the milliseconds of a step, by the request in it, and by a thousand resident tokens, and the quality of the
/// fit. With fewer than `least` answers it is the median alone.
pub(super) fn fit(
    workers: &[WorkerAnswers],
    prefill_ms: [f64; 3],
    least: usize,
) -> ([f64; 3], Option<FitQuality>) {
    let costs = [prefill_ms[0], prefill_ms[1] / 1e3, prefill_ms[2] / 1e3];
    let samples = workers.iter().flat_map(WorkerAnswers::samples);
    let samples: Vec<MeasuredStep> = samples
        .filter_map(|sample| without_prompts(&sample, costs))
        .collect();
    let fitted = (samples.len() >= least)
        .then(|| lines::fit(&samples, 0))
        .flatten();
    match fitted {
        Some(([fixed, by_request, by_token], quality)) => {
            ([fixed, by_request, 1e3 * by_token], Some(quality))
        }
        None => {
            let usual = median(samples.iter().map(|sample| sample.took));
            ([if usual.is_nan() { 0.0 } else { usual }, 0.0, 0.0], None)
        }
    }
}

/// Returns a step without the prompts, whose costs are known.
fn without_prompts(sample: &AnswerSample, costs: PromptTerms) -> Option<MeasuredStep> {
    let [one, uncached, cached, step, batch, resident] = sample.step.terms;
    let prompts = costs[0] * one + costs[1] * uncached + costs[2] * cached;
    let took = sample.step.took - prompts;
    (took > 0.0).then_some(MeasuredStep {
        terms: [step, batch, resident],
        took,
    })
}

impl WorkerAnswers {
    /// Returns the answers of a worker, and the prompts computed there.
    pub(super) fn of(recording: &Recording, worker: usize) -> Self {
        let answers = answers(recording, worker);
        let spans = |height: fn(&RecordedAnswer) -> f64| {
            Area::of(
                answers
                    .iter()
                    .map(move |answer| (answer.from_us, answer.until_us, height(answer))),
            )
        };
        Self {
            batch: spans(|_| 1.0),
            resident: spans(|answer| answer.tokens),
            prompts: prompts(recording, worker),
            answers,
        }
    }

    /// Returns the answers being written at a time, and the tokens held by them.
    pub(super) fn at(&self, at_us: u64) -> (f64, f64) {
        (self.batch.height(at_us), self.resident.height(at_us))
    }

    /// Returns the steps of its answers.
    pub(super) fn samples(&self) -> Vec<AnswerSample> {
        let sample = |answer: &RecordedAnswer| {
            let (from_us, until_us, steps) = (answer.from_us, answer.until_us, answer.steps?);
            let span_us = (until_us - from_us) as f64;
            let (before, after) = (until(&self.prompts, from_us), until(&self.prompts, until_us));
            let [one, uncached, cached] = [0, 1, 2].map(|term| (after[term] - before[term]) / steps);
            let mean = |area: &Area| (area.until(until_us) - area.until(from_us)) / span_us;
            let terms = [
                one,
                uncached,
                cached,
                1.0,
                mean(&self.batch),
                mean(&self.resident),
            ];
            let took = span_us / 1e3 / steps;
            Some(AnswerSample {
                step: MeasuredStep { terms, took },
                steps,
            })
        };
        self.answers.iter().filter_map(sample).collect()
    }
}

fn answers(recording: &Recording, worker: usize) -> Vec<RecordedAnswer> {
    let courses = recording.measured.courses.iter().zip(&recording.trace.requests);
    let here = courses.filter(|(course, _)| course.worker == Some(worker));
    let answer = |(course, request): (&RequestOutcome, &Request)| {
        let (from_us, until_us) = (
            course.first_token_us.or(course.dispatched_us)?,
            course.finished_us?,
        );
        let is_measured = course.first_token_us.is_some() && request.output_tokens >= LEAST_TOKENS;
        Some(RecordedAnswer {
            from_us,
            until_us,
            tokens: f64::from(request.prompt_tokens) + f64::from(request.output_tokens) / 2.0,
            steps: (is_measured && until_us > from_us).then(|| f64::from(request.output_tokens - 1)),
        })
    };
    here.filter_map(answer).collect()
}

impl Area {
    fn of(spans: impl Iterator<Item = (u64, u64, f64)>) -> Self {
        let ends = spans.flat_map(|(from_us, until_us, height)| [(from_us, height), (until_us, -height)]);
        let mut ends: Vec<(u64, f64)> = ends.collect();
        ends.sort_by_key(|(at_us, _)| *at_us);
        let mut area = Self::default();
        let (mut before_us, mut height, mut sum) = (0, 0.0, 0.0);
        for (at_us, step) in ends {
            sum += height * (at_us - before_us) as f64;
            height += step;
            before_us = at_us;
            area.changes.push((at_us, height, sum));
        }
        area
    }

    fn last_change(&self, at_us: u64) -> Option<(u64, f64, f64)> {
        let after = self
            .changes
            .partition_point(|(change_us, ..)| *change_us <= at_us);
        after.checked_sub(1).map(|at| self.changes[at])
    }

    fn until(&self, at_us: u64) -> f64 {
        self.last_change(at_us).map_or(0.0, |(change_us, height, sum)| {
            sum + height * (at_us - change_us) as f64
        })
    }

    fn height(&self, at_us: u64) -> f64 {
        self.last_change(at_us).map_or(0.0, |(_, height, _)| height)
    }
}

/// Returns the sums of the terms of a worker's prompts until the time of each first token.
fn prompts(recording: &Recording, worker: usize) -> Vec<(u64, PromptTerms)> {
    let courses = recording.measured.courses.iter().zip(&recording.trace.requests);
    let here = courses.filter(|(course, _)| course.prefill == Some(worker));
    let mut prompts: Vec<(u64, PromptTerms)> = here
        .filter_map(|(course, request)| {
            let cached = f64::from(course.cached_tokens);
            let uncached = f64::from(request.prompt_tokens) - cached;
            Some((course.first_token_us?, [1.0, uncached, cached]))
        })
        .collect();
    prompts.sort_by_key(|(at_us, _)| *at_us);
    let mut sums = PromptTerms::default();
    for (_, terms) in &mut prompts {
        for (sum, term) in sums.iter_mut().zip(terms) {
            *sum += *term;
            *term = *sum;
        }
    }
    prompts
}

fn until(sums: &[(u64, PromptTerms)], at_us: u64) -> PromptTerms {
    let after = sums.partition_point(|(value_us, _)| *value_us <= at_us);
    after
        .checked_sub(1)
        .map_or_else(Default::default, |at| sums[at].1)
}
