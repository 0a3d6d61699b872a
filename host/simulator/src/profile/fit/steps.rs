//! Fit of a batch step's cost to the mean times between tokens.

use super::lines::{self, FitQuality, MeasuredStep, median};
use crate::outcome::RequestOutcome;
use crate::request::Request;
use crate::trace::Recording;

/// Answers with fewer tokens are no sample of a step.
const LEAST_TOKENS: u32 = 4;

/// An answer that a worker wrote. Times are microseconds.
struct RecordedAnswer {
    from_us: u64,
    until_us: u64,
    /// Held for it in the mean.
    tokens: f64,
    /// Steps, if there are enough of them to be a sample.
    steps: Option<f64>,
}

/// The time that passed on a worker with something, summed up from the beginning to each change.
#[derive(Default)]
struct Area {
    /// When it changed, what it was from then on, and the area until then.
    changes: Vec<(u64, f64, f64)>,
}

/// Milliseconds of a step, by the request in it, and by a thousand resident tokens; and how good that is. Where there
/// are fewer than `least` answers, the median alone.
pub(super) fn fit(
    recording: &Recording,
    prefill_ms: [f64; 3],
    least: usize,
) -> ([f64; 3], Option<FitQuality>) {
    let mut samples = Vec::new();
    for worker in 0..recording.measured.workers.len() {
        samples.extend(of_worker(recording, worker, prefill_ms));
    }
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

fn of_worker(recording: &Recording, worker: usize, prefill_ms: [f64; 3]) -> Vec<MeasuredStep> {
    let (answers, mut prompts) = (answers(recording, worker), Vec::new());
    let courses = recording.measured.courses.iter().zip(&recording.trace.requests);
    for (course, request) in courses.filter(|(course, _)| course.prefill == Some(worker)) {
        let cached = f64::from(course.cached_tokens);
        let uncached = f64::from(request.prompt_tokens) - cached;
        let took_ms = (prefill_ms[1] * uncached + prefill_ms[2] * cached) / 1e3;
        prompts.extend(course.first_token_us.map(|at_us| (at_us, took_ms)));
    }
    let batch = Area::of(
        answers
            .iter()
            .map(|answer| (answer.from_us, answer.until_us, 1.0)),
    );
    let resident = Area::of(
        answers
            .iter()
            .map(|answer| (answer.from_us, answer.until_us, answer.tokens)),
    );
    let computed = sums(prompts);
    let sample = |answer: &RecordedAnswer| {
        let (from_us, until_us) = (answer.from_us, answer.until_us);
        let span_us = (until_us - from_us) as f64;
        let prompts_ms = until(&computed, until_us) - until(&computed, from_us);
        let took = (span_us / 1e3 - prompts_ms) / answer.steps?;
        (took > 0.0).then(|| MeasuredStep {
            terms: [
                1.0,
                (batch.until(until_us) - batch.until(from_us)) / span_us,
                (resident.until(until_us) - resident.until(from_us)) / span_us,
            ],
            took,
        })
    };
    answers.iter().filter_map(sample).collect()
}

fn answers(recording: &Recording, worker: usize) -> Vec<RecordedAnswer> {
    let courses = recording.measured.courses.iter().zip(&recording.trace.requests);
    let here = courses.filter(|(course, _)| course.worker == Some(worker));
    let answer = |(course, request): (&RequestOutcome, &Request)| {
        let (from_us, until_us) = (
            course.first_token_us.or(course.dispatched_us)?,
            course.finished_us?,
        );
        let is_told = course.first_token_us.is_some() && request.output_tokens >= LEAST_TOKENS;
        Some(RecordedAnswer {
            from_us,
            until_us,
            tokens: f64::from(request.prompt_tokens) + f64::from(request.output_tokens) / 2.0,
            steps: (is_told && until_us > from_us).then(|| f64::from(request.output_tokens - 1)),
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

    fn until(&self, at_us: u64) -> f64 {
        let after = self
            .changes
            .partition_point(|(change_us, ..)| *change_us <= at_us);
        let Some((change_us, height, sum)) = after.checked_sub(1).and_then(|at| self.changes.get(at)) else {
            return 0.0;
        };
        sum + height * (at_us - change_us) as f64
    }
}

/// Returns the values up to each time.
fn sums(mut values: Vec<(u64, f64)>) -> Vec<(u64, f64)> {
    values.sort_by_key(|(at_us, _)| *at_us);
    let mut sum = 0.0;
    for (_, value) in &mut values {
        sum += *value;
        *value = sum;
    }
    values
}

fn until(sums: &[(u64, f64)], at_us: u64) -> f64 {
    let after = sums.partition_point(|(value_us, _)| *value_us <= at_us);
    after.checked_sub(1).map_or(0.0, |at| sums[at].1)
}
