//! Sampler of the cluster's state.

use routing::Role;

use super::Run;
use crate::engine::Gauge;
use crate::outcome::{End, Sample};
use crate::spec::WorkerSpec;

/// Most samples that are kept. Where there would be more, every second one goes, and the next ones are taken half as
/// often.
const MOST: usize = 2_000;

/// The samples of a run, and its running sums.
#[derive(Debug)]
pub(super) struct Sampler {
    every_us: u64,
    samples: Vec<Sample>,
    blocks: u64,
    cached_blocks: u64,
    rejected: usize,
}

impl Sampler {
    pub(super) fn new(every_us: u64) -> Self {
        Self {
            every_us,
            samples: Vec::new(),
            blocks: 0,
            cached_blocks: 0,
            rejected: 0,
        }
    }

    /// Returns the time from a sample to the next.
    pub(super) fn every_us(&self) -> u64 {
        self.every_us
    }

    /// Records that a prompt of so many blocks is computed, of which so many were there.
    pub(super) fn computed(&mut self, blocks: usize, cached: u32) {
        self.blocks += blocks as u64;
        self.cached_blocks += u64::from(cached);
    }

    /// Records the end of a request.
    pub(super) fn ended(&mut self, end: End) {
        self.rejected += usize::from(matches!(end, End::Rejected { .. }));
    }

    pub(super) fn end(self) -> Vec<Sample> {
        self.samples
    }

    fn keep(&mut self, sample: Sample) {
        self.samples.push(sample);
        if self.samples.len() > MOST {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.every_us *= 2;
        }
    }
}

impl Run<'_> {
    /// Looks at the cluster.
    pub(super) fn sample(&mut self, now_us: u64) {
        let mut sample = Sample {
            at_us: now_us,
            held: self.routers.held(),
            blocks: self.sampler.blocks,
            cached_blocks: self.sampler.cached_blocks,
            rejected: self.sampler.rejected,
            ..Sample::default()
        };
        let (mut prefill, mut decode) = (Mean::default(), Mean::default());
        for (at, worker) in self.spec.cluster.workers.iter().enumerate() {
            if self.away[at] {
                continue;
            }
            let gauge = self.cluster.gauge(now_us, at);
            add(&mut sample, &gauge);
            if worker.role != Role::Decode {
                prefill.add(gauge.backlog_us);
            }
            if self.writes_answers(worker) {
                decode.add(gauge.step_us);
            }
        }
        let limits = &self.spec.limits;
        sample.prefill_load = prefill.over(limits.ttft_us);
        sample.decode_load = decode.over(limits.tbt_us);
        self.sampler.keep(sample);
    }

    fn writes_answers(&self, worker: &WorkerSpec) -> bool {
        self.spec.cluster.decode && worker.role != Role::Prefill
    }
}

fn add(sample: &mut Sample, gauge: &Gauge) {
    sample.in_prefill += gauge.prompts;
    sample.queued_tokens += gauge.queued_tokens;
    sample.most_queued_tokens = sample.most_queued_tokens.max(gauge.queued_tokens);
    sample.handed_over += gauge.handed_over;
    sample.decoding += gauge.decoding;
    sample.resident_tokens += gauge.resident_tokens;
}

#[derive(Debug, Default)]
struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, us: u64) {
        self.sum += us;
        self.count += 1;
    }

    /// Returns the mean as a share of a limit. `None` without values.
    fn over(&self, limit_us: u64) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64 / limit_us as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_long_a_run_is_its_samples_stay_few_and_even() {
        let mut sampler = Sampler::new(10);
        let mut at_us = 0;
        for _ in 0..10 * MOST {
            sampler.keep(Sample {
                at_us,
                ..Sample::default()
            });
            at_us += sampler.every_us();
        }
        let every_us = sampler.every_us();
        let samples = sampler.end();
        assert!(
            samples.len() > MOST / 2 && samples.len() <= MOST,
            "{}",
            samples.len()
        );
        assert!(
            samples
                .windows(2)
                .all(|pair| pair[1].at_us - pair[0].at_us == every_us)
        );
    }
}
