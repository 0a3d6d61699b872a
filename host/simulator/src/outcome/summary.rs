//! Summary of a run: the figures by which policies are compared.

use serde::Serialize;

use super::{Breakdown, End, LatencyTargets, Outcome, PoolLoads, Quantiles, RequestOutcome};
use crate::request::Trace;

/// A run in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// Requests of the trace.
    pub requests: usize,
    /// Requests whose last token was sent.
    pub served: usize,
    /// Requests that were refused, by the router or by a decode worker.
    pub rejected: usize,
    /// Requests among these that were refused before anything was computed.
    pub rejected_early: usize,
    /// Requests whose prompts were computed and lost.
    pub rejected_after_prefill: usize,
    /// Requests that failed with a worker.
    pub lost: usize,
    /// Times to first token, in seconds, of those that had one.
    pub ttft_s: Quantiles,
    /// Longest tenths of the times between tokens, in milliseconds.
    pub tbt_ms: Quantiles,
    /// Share of all requests that had their first token within the limit.
    pub within_ttft: f64,
    /// Share within 5 s.
    pub within_5_s: f64,
    /// Share of all requests that were served within both limits (effective requests).
    pub effective: f64,
    /// Effective requests a second, from the first arrival of the run to the last.
    pub goodput_per_s: f64,
    /// Blocks of the placed prompts that were not computed, as a share.
    pub block_hit_ratio: f64,
    /// Hit ratio of tokens.
    pub token_hit_ratio: f64,
    /// Prompt tokens computed by the worker that computed most, over the mean of those that compute prompts; NaN where
    /// nothing was computed.
    pub imbalance: f64,
    /// Prompt tokens that were computed, and that no answer came of.
    pub wasted_prefill_tokens: u64,
    /// Wasted tokens as a share of all prompt tokens that were computed.
    pub wasted_prefill_share: f64,
    /// Load of the pools while requests arrived.
    pub loads: PoolLoads,
    /// Share of the decisions that the policy failed to make.
    pub faults: f64,
    /// Times to first token by prompt length and turn, attainment, refusals and fairness.
    pub breakdown: Breakdown,
}

impl Summary {
    /// Returns the summary of a run of a trace.
    #[must_use]
    pub fn of(trace: &Trace, outcome: &Outcome, limits: &LatencyTargets) -> Self {
        let courses = &outcome.courses;
        let count = |is: fn(&End) -> bool| courses.iter().filter(|course| is(&course.end)).count();
        let requests = courses.len();
        let share = |number: usize| number as f64 / requests as f64;
        let within = |limit_us: u64| {
            let in_time = |course: &&RequestOutcome| course.ttft_us().is_some_and(|ttft| ttft <= limit_us);
            courses.iter().filter(in_time).count()
        };
        let effective = courses
            .iter()
            .filter(|course| is_effective(course, limits))
            .count();
        let arrivals = || courses.iter().map(|course| course.arrived_us);
        let last_us = arrivals().max().unwrap_or(0);
        let seconds = (last_us - arrivals().min().unwrap_or(0)) as f64 / 1e6;
        let [blocks, tokens] = hit_ratios(trace, courses);
        let [computed, wasted] = prefill_tokens(trace, outcome);
        Self {
            requests,
            served: count(|end| *end == End::Served),
            rejected: count(|end| matches!(end, End::Rejected { .. })),
            rejected_early: count(|end| matches!(end, End::Rejected { computed: false, .. })),
            rejected_after_prefill: count(|end| matches!(end, End::Rejected { computed: true, .. })),
            lost: count(|end| *end == End::Lost),
            ttft_s: Quantiles::of(
                courses
                    .iter()
                    .filter_map(RequestOutcome::ttft_us)
                    .map(|us| us as f64 / 1e6),
            ),
            tbt_ms: Quantiles::of(
                courses
                    .iter()
                    .filter_map(|course| course.tbt_us)
                    .map(|us| us / 1e3),
            ),
            within_ttft: share(within(limits.ttft_us)),
            within_5_s: share(within(5_000_000)),
            effective: share(effective),
            goodput_per_s: effective as f64 / seconds,
            block_hit_ratio: blocks,
            token_hit_ratio: tokens,
            imbalance: imbalance(outcome),
            wasted_prefill_tokens: wasted,
            wasted_prefill_share: wasted as f64 / computed as f64,
            loads: PoolLoads::of(&outcome.samples, last_us),
            faults: outcome.router.faults.values().sum::<u64>() as f64 / outcome.router.calls as f64,
            breakdown: Breakdown::of(trace, outcome, limits),
        }
    }
}

fn is_effective(course: &RequestOutcome, limits: &LatencyTargets) -> bool {
    course.end == End::Served
        && course.ttft_us().is_some_and(|ttft| ttft <= limits.ttft_us)
        && course.tbt_us.is_none_or(|tbt| tbt <= limits.tbt_us as f64)
}

/// Returns the hit ratios of blocks and of tokens, over the requests whose prompts were placed.
fn hit_ratios(trace: &Trace, courses: &[RequestOutcome]) -> [f64; 2] {
    let placed = || {
        let both = trace.requests.iter().zip(courses);
        both.filter(|(_, course)| course.dispatched_us.is_some())
    };
    let blocks: u64 = placed().map(|(request, _)| request.blocks.len() as u64).sum();
    let tokens: u64 = placed()
        .map(|(request, _)| u64::from(request.prompt_tokens))
        .sum();
    let cached_blocks: u64 = placed().map(|(_, course)| u64::from(course.cached_blocks)).sum();
    let cached_tokens: u64 = placed().map(|(_, course)| u64::from(course.cached_tokens)).sum();
    [
        cached_blocks as f64 / blocks as f64,
        cached_tokens as f64 / tokens as f64,
    ]
}

/// Returns the prompt tokens that were computed, and those among them without an answer: a prompt may be computed again
/// where a worker fails.
fn prefill_tokens(trace: &Trace, outcome: &Outcome) -> [u64; 2] {
    let computed: u64 = outcome.workers.iter().map(|worker| worker.computed_tokens).sum();
    let all = trace.requests.iter().zip(&outcome.courses);
    let served = all.filter(|(_, course)| course.end == End::Served);
    let used: u64 = served
        .map(|(request, course)| u64::from(request.prompt_tokens.saturating_sub(course.cached_tokens)))
        .sum();
    [computed, computed.saturating_sub(used)]
}

fn imbalance(outcome: &Outcome) -> f64 {
    let computing = || {
        let workers = outcome.workers.iter();
        workers.filter(|worker| worker.computes || worker.computed_tokens > 0)
    };
    let most = computing()
        .map(|worker| worker.computed_tokens)
        .max()
        .unwrap_or(0);
    let all: u64 = computing().map(|worker| worker.computed_tokens).sum();
    most as f64 * computing().count() as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::super::{RefusalReason, WorkerUse};
    use super::*;
    use crate::request::Request;

    fn trace(requests: u64) -> Trace {
        let request = |number| Request {
            at_us: number * 1_000_000,
            prompt_tokens: 1_000,
            output_tokens: 10,
            blocks: [number, 100 + number].into(),
            session: None,
            grown_blocks: Box::default(),
            model: "".into(),
            after: None,
            tenant: None,
        };
        Trace {
            name: "test".to_owned(),
            block_tokens: 512,
            requests: (0..requests).map(request).collect(),
        }
    }

    /// Returns an outcome: the first token after so many seconds, the longest tenth of times in milliseconds.
    fn served(at_s: u64, ttft_s: u64, tbt_ms: f64) -> RequestOutcome {
        let arrived_us = at_s * 1_000_000;
        RequestOutcome {
            dispatched_us: Some(arrived_us),
            first_token_us: Some(arrived_us + ttft_s * 1_000_000),
            finished_us: Some(arrived_us + ttft_s * 1_000_000 + 1),
            tbt_us: Some(tbt_ms * 1e3),
            end: End::Served,
            ..RequestOutcome::arrived(arrived_us)
        }
    }

    #[test]
    fn only_what_is_served_in_time_counts() {
        let refused = |end| RequestOutcome {
            end,
            ..RequestOutcome::arrived(3_000_000)
        };
        let outcome = Outcome {
            courses: vec![
                served(0, 1, 99.0),
                served(1, 31, 50.0),
                served(2, 6, 101.0),
                refused(End::Rejected {
                    status: 429,
                    computed: false,
                    reason: RefusalReason::Policy,
                }),
                refused(End::Lost),
            ],
            ..Outcome::default()
        };
        let summary = Summary::of(&trace(5), &outcome, &LatencyTargets::default());
        assert_eq!((summary.rejected_early, summary.rejected_after_prefill), (1, 0));
        assert_eq!((summary.served, summary.rejected, summary.lost), (3, 1, 1));
        assert_eq!((summary.within_ttft, summary.within_5_s), (0.4, 0.2));
        assert_eq!(summary.effective, 0.2);
        assert_eq!(summary.goodput_per_s, 1.0 / 3.0, "the last one arrived at 3 s");
        assert_eq!(summary.ttft_s.max, 31.0);
    }

    #[test]
    fn hits_are_those_of_the_requests_that_were_placed() {
        let mut hit = served(0, 1, 1.0);
        (hit.cached_blocks, hit.cached_tokens) = (1, 512);
        let outcome = Outcome {
            courses: vec![hit, served(1, 1, 1.0), RequestOutcome::arrived(2_000_000)],
            ..Outcome::default()
        };
        let summary = Summary::of(&trace(3), &outcome, &LatencyTargets::default());
        assert_eq!(summary.block_hit_ratio, 0.25);
        assert_eq!(summary.token_hit_ratio, 0.256);
    }

    #[test]
    fn tokens_computed_for_a_rejected_request_are_wasted() {
        let in_vain = RequestOutcome {
            end: End::Rejected {
                status: 429,
                computed: true,
                reason: RefusalReason::DecodeWorker,
            },
            ..RequestOutcome::arrived(1_000_000)
        };
        let outcome = Outcome {
            courses: vec![served(0, 1, 1.0), in_vain],
            workers: vec![WorkerUse {
                computes: true,
                computed_tokens: 2_000,
            }],
            ..Outcome::default()
        };
        let summary = Summary::of(&trace(2), &outcome, &LatencyTargets::default());
        assert_eq!(summary.rejected_after_prefill, 1);
        assert_eq!(
            (summary.wasted_prefill_tokens, summary.wasted_prefill_share),
            (1_000, 0.5)
        );
    }

    #[test]
    fn a_worker_that_did_everything_is_as_many_times_the_mean_as_there_are() {
        let worker = |computes, computed_tokens| WorkerUse {
            computes,
            computed_tokens,
        };
        let outcome = Outcome {
            workers: vec![
                worker(true, 900),
                worker(true, 0),
                worker(true, 0),
                worker(false, 0),
            ],
            ..Outcome::default()
        };
        let summary = Summary::of(&trace(1), &outcome, &LatencyTargets::default());
        assert_eq!(summary.imbalance, 3.0);
    }
}
