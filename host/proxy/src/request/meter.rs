//! Meter of one request: its times and tokens, which its end adds to the metrics of pool and model.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use inference_api::{EndpointClass, Tail};
use observability::TracedHistogram;
use request_traces::TraceId;

use crate::base::label::Outcome;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::metrics::PoolMetrics;
use crate::dispatch::model_metrics::ModelMetrics;
use crate::observe::stages::{RequestStage, STAGES, StageTimes};

/// Start of a request's measurement.
#[derive(Debug)]
pub(crate) struct MeterStart {
    pub(crate) arrived: Instant,
    pub(crate) class: EndpointClass,
    pub(crate) model: Arc<ModelMetrics>,
    /// Stages before the request had a pool.
    pub(crate) stages: StageTimes,
}

/// Measurement of one request.
#[derive(Debug)]
pub(crate) struct RequestMeter {
    arrived: Instant,
    class: EndpointClass,
    model: Arc<ModelMetrics>,
    stages: MeteredStages,
    /// Status that the client is answered with.
    status: Option<StatusCode>,
    stream: StreamMeasure,
    output_tokens: u64,
    /// `false` for a request whose worker computes nothing: the times and tokens of its answer are not counted,
    /// unless it has tokens of a response that no earlier answer had.
    pub(crate) counts_tokens: bool,
    /// Output tokens of the response that earlier answers had.
    tokens_before: u64,
}

/// Stages of a request.
#[derive(Debug)]
enum MeteredStages {
    /// Being added to by the attempts of the request.
    Placing(Arc<InferenceRequest>),
    /// Over, up to the worker's answer.
    Taken(StageTimes),
}

/// Times of a streamed answer.
#[derive(Debug, Default)]
struct StreamMeasure {
    /// First and last piece.
    first: Option<Instant>,
    last: Option<Instant>,
    longest_pause: Duration,
}

impl RequestMeter {
    pub(crate) fn start(start: MeterStart) -> Self {
        start.model.expects(start.class);
        Self {
            arrived: start.arrived,
            class: start.class,
            model: start.model,
            stages: MeteredStages::Taken(start.stages),
            status: None,
            stream: StreamMeasure::default(),
            output_tokens: 0,
            counts_tokens: true,
            tokens_before: 0,
        }
    }

    /// Returns the label of the model.
    pub(crate) fn model(&self) -> &str {
        self.model.name()
    }

    /// Returns the time since the arrival.
    pub(crate) fn after(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.arrived)
    }

    /// Follows the stages of a request that is being placed.
    pub(crate) fn placing(&mut self, request: &Arc<InferenceRequest>) {
        self.stages = MeteredStages::Placing(Arc::clone(request));
    }

    /// Takes the stages of a request that was placed, and lets go of it.
    pub(crate) fn placed(&mut self) {
        self.stages = MeteredStages::Taken(self.stages());
    }

    /// Sets the time of a stage that takes place once, after the request was placed.
    pub(crate) fn set(&mut self, stage: RequestStage, took: Duration) {
        if let MeteredStages::Taken(times) = &mut self.stages {
            times.set(stage, took);
        }
    }

    /// Returns the times of the stages.
    pub(crate) fn stages(&self) -> StageTimes {
        match &self.stages {
            MeteredStages::Placing(request) => request.head.watch.stages.times(),
            MeteredStages::Taken(times) => *times,
        }
    }

    /// Records the status that the client is answered with. The first one counts.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status.get_or_insert(status);
    }

    /// Returns `true` if a status was recorded.
    pub(crate) fn is_answered(&self) -> bool {
        self.status.is_some()
    }

    /// Records the first byte of a streamed answer.
    pub(crate) fn first_token(&mut self, now: Instant) {
        if !self.counts_tokens {
            return;
        }
        self.model.first_token.observe(self.after(now).as_secs_f64());
        self.stream.first = Some(now);
    }

    /// Records a piece of a streamed answer. `tail` has it.
    pub(crate) fn chunk(&mut self, now: Instant, tail: &Tail) {
        if !self.counts_tokens {
            return;
        }
        if let Some(last) = self.stream.last.replace(now) {
            let pause = now.saturating_duration_since(last);
            self.stream.longest_pause = self.stream.longest_pause.max(pause);
        }
        self.output_tokens = tail.tokens_so_far();
    }

    /// Counts the tokens of the answer, except for the first `before` output tokens.
    pub(crate) fn count_tokens_after(&mut self, before: u64) {
        self.counts_tokens = true;
        self.tokens_before = before;
    }

    /// Counts at least `known` output tokens.
    pub(crate) fn raise_output(&mut self, known: u64) {
        self.output_tokens = self.output_tokens.max(known);
    }

    /// Returns the output tokens that are counted so far.
    pub(crate) fn output_tokens(&self) -> u64 {
        self.output_tokens
    }

    /// Records the usage of an answer that was read to its end.
    pub(crate) fn read(&mut self, tail: &Tail) {
        // The length of an answer in one piece is a poor measure: it may be an image.
        if let (Some(tokens), true) = (tail.output_tokens(), self.counts_tokens) {
            self.output_tokens = tokens.saturating_sub(self.tokens_before);
        }
    }

    /// Adds the request to the metrics. Returns the time since its arrival. `traced`: the trace that is exported.
    pub(crate) fn end(&self, pool: &PoolMetrics, outcome: Outcome, traced: Option<TraceId>) -> Duration {
        let after = self.after(Instant::now());
        self.model.duration.observe(after.as_secs_f64());
        if let Some(status) = self.status {
            self.model.answered(self.class, status);
        }
        if self.output_tokens > 0 {
            self.model.output_tokens.inc_by(self.output_tokens);
        }
        let times = self.stages();
        for (stage, _) in STAGES {
            if let Some(spent) = times.spent(stage) {
                pool.times.stages[stage as usize].observe(spent.as_secs_f64());
            }
        }
        if let Some(own) = times.own() {
            pool.times.overhead.observe(own.as_secs_f64());
        }
        if let (Outcome::Complete, Some(first), Some(last)) = (outcome, self.stream.first, self.stream.last) {
            pool.times
                .longest_pauses
                .observe(self.stream.longest_pause.as_secs_f64());
            let time = per_token(last.saturating_duration_since(first), self.output_tokens);
            if let Some(time) = time {
                self.model.per_token.observe(time.as_secs_f64());
            }
            if let Some(trace) = traced {
                keep(&pool.times.longest_pauses, Some(self.stream.longest_pause), trace);
                keep(&self.model.per_token, time, trace);
            }
        }
        if let Some(trace) = traced {
            let first = self.stream.first.map(|first| self.after(first));
            keep(&self.model.first_token, first, trace);
            keep(&self.model.duration, Some(after), trace);
        }
        after
    }
}

/// Keeps a time as the exemplar of its bucket.
fn keep(times: &TracedHistogram, time: Option<Duration>, trace: TraceId) {
    if let Some(time) = time {
        times.keep_exemplar(time.as_secs_f64(), trace.bytes());
    }
}

/// Returns the mean time of each token after the first.
fn per_token(time: Duration, tokens: u64) -> Option<Duration> {
    let later = u32::try_from(tokens.checked_sub(1)?).ok()?;
    time.checked_div(later)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_token_is_known_from_the_second_on() {
        let check = |tokens, expected| assert_eq!(per_token(Duration::from_secs(6), tokens), expected);
        check(0, None);
        check(1, None);
        check(4, Some(Duration::from_secs(2)));
    }
}
