//! Breakdown of a run: times to first token by prompt length and by turn, attainment, refusals and fairness.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{End, LatencyTargets, Outcome, Quantiles, RefusalReason, RequestOutcome};
use crate::request::Trace;

/// Groups by prompt length.
const LENGTH_GROUPS: usize = 10;
/// Groups by turn; the last one has all later turns.
const TURN_GROUPS: u32 = 7;
/// Times of the attainment curve, in seconds.
const ATTAINMENT_S: [f64; 15] = [
    0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0,
];

/// Times to first token of parts of the requests, and further shares of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Breakdown {
    /// Tenths of the requests by prompt length, the shortest first.
    pub by_length: Vec<LengthGroup>,
    /// Requests by their turn in the session: 1 to 6, and all later ones.
    pub by_turn: Vec<TurnGroup>,
    /// Share of all requests with a first token within each time of a fixed grid.
    pub attainment: Vec<AttainmentPoint>,
    /// Shares of all requests that were refused or lost.
    pub refusals: RefusalShares,
    /// Differences between tenants.
    pub fairness: Fairness,
}

/// Times to first token of a group of requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct GroupTimes {
    /// Requests of the group.
    pub requests: usize,
    /// Mean time of those with a first token, in seconds; NaN without any.
    pub ttft_s: f64,
    /// 99th percentile, in seconds.
    pub p99_s: f64,
    /// Share of the group with a first token within the limit.
    pub in_time: f64,
}

/// Tenth of the requests by prompt length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LengthGroup {
    /// Longest prompt of the group, in tokens; 0 for an empty group.
    pub up_to_tokens: u32,
    /// Times of the group.
    #[serde(flatten)]
    pub times: GroupTimes,
}

/// Requests with the same turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TurnGroup {
    /// First turn of the group, from 1.
    pub turn: u32,
    /// Times of the group.
    #[serde(flatten)]
    pub times: GroupTimes,
}

/// Point of the attainment curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AttainmentPoint {
    /// Time since the arrival, in seconds.
    pub within_s: f64,
    /// Share of all requests with a first token by then.
    pub share: f64,
}

/// Shares of all requests that got no complete answer, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RefusalShares {
    /// Rejected by the policy.
    pub policy: f64,
    /// To be held, while too many were held.
    pub queue_full: f64,
    /// Held for too long.
    pub queue_timeout: f64,
    /// Without an eligible worker.
    pub no_worker: f64,
    /// Refused by a decode worker, after the prefill.
    pub decode_worker: f64,
    /// Failed with a worker.
    pub lost: f64,
}

/// Differences between tenants. All but the number are NaN for fewer than two tenants. `jain` and `slowest_s` are NaN
/// also if a tenant has no first token: its time has no end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Fairness {
    /// Tenants with requests.
    pub tenants: usize,
    /// Jain's index of the tenants' mean times to first token: 1 for equal ones, 1 / tenants at worst.
    pub jain: f64,
    /// Mean time to first token of the slowest tenant, in seconds.
    pub slowest_s: f64,
    /// Mean time to first token of the fastest tenant, in seconds.
    pub fastest_s: f64,
    /// Least share of a tenant's requests with a first token within the limit.
    pub worst_in_time: f64,
}

impl Breakdown {
    pub(super) fn of(trace: &Trace, outcome: &Outcome, limits: &LatencyTargets) -> Self {
        let courses = outcome.courses.as_slice();
        Self {
            by_length: by_length(trace, courses, limits),
            by_turn: by_turn(trace, courses, limits),
            attainment: attainment(courses),
            refusals: RefusalShares::of(courses),
            fairness: Fairness::of(trace, courses, limits),
        }
    }
}

impl GroupTimes {
    fn of(courses: &[&RequestOutcome], limits: &LatencyTargets) -> Self {
        let ttft = courses.iter().filter_map(|course| course.ttft_us());
        let times = Quantiles::of(ttft.clone().map(|us| us as f64 / 1e6));
        Self {
            requests: courses.len(),
            ttft_s: times.mean,
            p99_s: times.p99,
            in_time: ttft.filter(|us| *us <= limits.ttft_us).count() as f64 / courses.len() as f64,
        }
    }
}

fn by_length(trace: &Trace, courses: &[RequestOutcome], limits: &LatencyTargets) -> Vec<LengthGroup> {
    let mut sorted: Vec<(u32, &RequestOutcome)> = trace
        .requests
        .iter()
        .map(|request| request.prompt_tokens)
        .zip(courses)
        .collect();
    sorted.sort_by_key(|(tokens, _)| *tokens);
    let end = |group: usize| group * sorted.len() / LENGTH_GROUPS;
    let group = |number: usize| {
        let part = &sorted[end(number)..end(number + 1)];
        let courses: Vec<&RequestOutcome> = part.iter().map(|(_, course)| *course).collect();
        LengthGroup {
            up_to_tokens: part.last().map_or(0, |(tokens, _)| *tokens),
            times: GroupTimes::of(&courses, limits),
        }
    };
    (0..LENGTH_GROUPS).map(group).collect()
}

fn by_turn(trace: &Trace, courses: &[RequestOutcome], limits: &LatencyTargets) -> Vec<TurnGroup> {
    let turns = trace.turns();
    let group = |turn: u32| {
        let of_turn = turns.iter().zip(courses);
        let of_turn = of_turn.filter(|(found, _)| (**found).min(TURN_GROUPS) == turn);
        let courses: Vec<&RequestOutcome> = of_turn.map(|(_, course)| course).collect();
        TurnGroup {
            turn,
            times: GroupTimes::of(&courses, limits),
        }
    };
    (1..=TURN_GROUPS).map(group).collect()
}

fn attainment(courses: &[RequestOutcome]) -> Vec<AttainmentPoint> {
    let mut ttft: Vec<u64> = courses.iter().filter_map(RequestOutcome::ttft_us).collect();
    ttft.sort_unstable();
    let point = |within_s: f64| {
        let within = ttft.partition_point(|us| *us as f64 <= within_s * 1e6);
        AttainmentPoint {
            within_s,
            share: within as f64 / courses.len() as f64,
        }
    };
    ATTAINMENT_S.into_iter().map(point).collect()
}

impl RefusalShares {
    fn of(courses: &[RequestOutcome]) -> Self {
        let mut shares = Self::default();
        let each = 1.0 / courses.len() as f64;
        for course in courses {
            let share = match course.end {
                End::Served | End::Unfinished => continue,
                End::Lost => &mut shares.lost,
                End::Rejected { reason, .. } => match reason {
                    RefusalReason::Policy => &mut shares.policy,
                    RefusalReason::QueueFull => &mut shares.queue_full,
                    RefusalReason::QueueTimeout => &mut shares.queue_timeout,
                    RefusalReason::NoWorker => &mut shares.no_worker,
                    RefusalReason::DecodeWorker => &mut shares.decode_worker,
                },
            };
            *share += each;
        }
        shares
    }

    /// Returns the share of all requests without a complete answer.
    #[must_use]
    pub fn sum(&self) -> f64 {
        let Self {
            policy,
            queue_full,
            queue_timeout,
            no_worker,
            decode_worker,
            lost,
        } = self;
        policy + queue_full + queue_timeout + no_worker + decode_worker + lost
    }
}

impl Fairness {
    fn of(trace: &Trace, courses: &[RequestOutcome], limits: &LatencyTargets) -> Self {
        let mut by_tenant: BTreeMap<u32, Vec<&RequestOutcome>> = BTreeMap::new();
        for (request, course) in trace.requests.iter().zip(courses) {
            if let Some(tenant) = request.tenant {
                by_tenant.entry(tenant).or_default().push(course);
            }
        }
        let times: Vec<GroupTimes> = by_tenant
            .values()
            .map(|courses| GroupTimes::of(courses, limits))
            .collect();
        let unknown = Self {
            tenants: times.len(),
            jain: f64::NAN,
            slowest_s: f64::NAN,
            fastest_s: f64::NAN,
            worst_in_time: f64::NAN,
        };
        if times.len() < 2 {
            return unknown;
        }
        let means = times.iter().map(|times| times.ttft_s);
        let all_known = means.clone().all(|mean| !mean.is_nan());
        let slowest_s = means.clone().fold(f64::NAN, f64::max);
        Self {
            jain: jain(means.clone()),
            slowest_s: if all_known { slowest_s } else { f64::NAN },
            fastest_s: means.fold(f64::NAN, f64::min),
            worst_in_time: times.iter().map(|times| times.in_time).fold(f64::NAN, f64::min),
            ..unknown
        }
    }
}

/// Returns Jain's fairness index of some numbers (Jain, Chiu and Hawe 1984).
fn jain(numbers: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = numbers.clone().count() as f64;
    let squares: f64 = numbers.clone().map(|number| number * number).sum();
    numbers.sum::<f64>().powi(2) / (count * squares)
}

#[cfg(test)]
mod tests;
