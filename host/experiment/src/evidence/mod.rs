//! Evidence of a route's experiment: samples per arm, and sequential tests of each canary against the control.
//!
//! Two measures are compared. The time to first token is compared by its logarithm, so that a margin is a ratio and one
//! slow request does not outweigh a hundred. The other measure is the failure rate. A comparison has a look when its
//! smaller arm has `least` samples, then at twice as many, four times as many and so on.
//!
//! The error probability, 1 minus the confidence, is divided equally between both measures. Look number k (from 0)
//! spends the share 1/((k+1)(k+2)) of it. These shares add up to 1, so the probability of ever calling an equal canary
//! worse stays below the configured one (an alpha-spending sequence; Lan and DeMets, Biometrika 70, 1983).
//!
//! The samples of other routers count as the own ones ([`Evidence::set_others`]). A look of one router is a look of
//! all.
//!
//! A canary without any successful response is found earlier: after a number of consecutive failures, if the control's
//! results since the first of them make chance improbable, and several sessions failed ([`FailureStreak`]).

mod failures;
mod shared;

use self::failures::FailureStreak;
use crate::histogram::{TimeHistogram, TimesReport};
use crate::observation::RequestResult;
use crate::rule::{CanaryVerdict, Look, Measure, Shortage, StopCause, StopRule, Wanted};
use crate::statistics::{Difference, MIN_GROUPS, Samples, difference_of_means, difference_of_shares};

/// Samples of one arm.
#[derive(Debug, Default)]
struct ArmSamples {
    logs: Samples,
    errors: Samples,
    ttft: TimeHistogram,
    between: TimeHistogram,
    requests: u64,
    failed: u64,
    /// Consecutive failures up to now.
    failed_in_a_row: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
}

/// Samples of one arm at the other routers.
#[derive(Debug, Default)]
struct OtherSamples {
    logs: Samples,
    errors: Samples,
}

/// Summary of one arm's requests since the comparison began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmSummary {
    /// Finished requests.
    pub requests: u64,
    /// Requests among them that ended well or failed. The others are no evidence.
    pub judged: u64,
    /// Failed requests among them.
    pub failed: u64,
    /// Consecutive failures up to now.
    pub failed_in_a_row: u64,
    /// Times to first token of streamed responses. A client that left earlier counts with its waiting time.
    pub ttft: Option<TimesReport>,
    /// Times between tokens.
    pub between: Option<TimesReport>,
    /// Prompt tokens of responses that report them and the cached ones.
    pub prompt_tokens: u64,
    /// Cached tokens among them.
    pub cached_tokens: u64,
}

/// Sequential test of one measure of one canary.
#[derive(Debug, Clone, Copy)]
struct LookSchedule {
    /// Samples of the smaller arm at the next look.
    next_at: u64,
    looks: u32,
    last: Option<Look>,
}

/// Evidence of all arms of a route. Arm 0 is the control.
#[derive(Debug)]
pub struct Evidence {
    rule: StopRule,
    arms: Box<[ArmSamples]>,
    /// Samples of the other routers, by arm.
    others: Box<[OtherSamples]>,
    /// Tests of the arms from 1 up.
    canaries: Box<[[LookSchedule; 2]]>,
    /// Results of the control beside the consecutive failures of the arms from 1 up.
    streaks: Box<[FailureStreak]>,
}

/// Canary that was found to be worse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorseArm {
    /// Index of the arm.
    pub arm: usize,
    /// Reason.
    pub cause: StopCause,
}

const MEASURES: [Measure; 2] = [Measure::Ttft, Measure::Errors];

impl Evidence {
    /// Creates empty evidence of `arms` arms, including the control.
    #[must_use]
    pub fn new(rule: StopRule, arms: usize) -> Self {
        let schedule = LookSchedule {
            next_at: rule.least.max(1),
            looks: 0,
            last: None,
        };
        Self {
            rule,
            arms: (0..arms).map(|_| ArmSamples::default()).collect(),
            others: (0..arms).map(|_| OtherSamples::default()).collect(),
            canaries: (1..arms).map(|_| [schedule; 2]).collect(),
            streaks: (1..arms).map(|_| FailureStreak::default()).collect(),
        }
    }

    /// Adds the result of a request of an arm and session group. Returns the canaries now found to be worse.
    pub fn add(&mut self, arm: usize, group: u8, result: &RequestResult) -> Vec<WorseArm> {
        self.arms[arm].add(group, result);
        if let Some(failed) = result.failed {
            self.add_to_streaks(arm, group, failed);
        }
        // A request of the control can complete the samples of any canary.
        let concerned = if arm == 0 {
            1..self.arms.len()
        } else {
            arm..arm + 1
        };
        let mut worse: Vec<WorseArm> = concerned
            .clone()
            .filter_map(|canary| self.check_failures(canary))
            .collect();
        let looks = concerned.flat_map(|canary| MEASURES.map(|measure| (canary, measure)));
        worse.extend(looks.filter_map(|(canary, measure)| self.look(canary, measure)));
        worse
    }

    /// Returns the verdict on a canary so far.
    #[must_use]
    pub fn verdict(&self, arm: usize) -> CanaryVerdict {
        if self.check_failures(arm).is_some() {
            return CanaryVerdict::Worse;
        }
        let found = |measure| {
            let look = self.last(arm, measure);
            look.map_or(CanaryVerdict::TooFew, |look| look.verdict)
        };
        match self.is_by_failures_alone(arm) {
            true => found(Measure::Errors),
            false => CanaryVerdict::of(found(Measure::Ttft), found(Measure::Errors)),
        }
    }

    /// Returns true if no answer of the canary or the control was streamed up to a look at their failures.
    fn is_by_failures_alone(&self, arm: usize) -> bool {
        let is_streamed = |arm| self.count(arm, Measure::Ttft) > 0;
        self.last(arm, Measure::Errors).is_some() && !is_streamed(0) && !is_streamed(arm)
    }

    /// Returns the unmet preconditions of a canary's comparisons without a look.
    #[must_use]
    pub fn shortages(&self, arm: usize) -> Vec<Shortage> {
        let Some(series) = arm.checked_sub(1).and_then(|canary| self.canaries.get(canary)) else {
            return Vec::new();
        };
        let compared = MEASURES
            .into_iter()
            .filter(|measure| *measure == Measure::Errors || !self.is_by_failures_alone(arm));
        let unseen = compared.filter(|measure| series[*measure as usize].last.is_none());
        let sides = unseen.flat_map(|measure| [(measure, 0), (measure, arm)]);
        let shortages = sides.flat_map(|(measure, arm)| {
            let samples = self.samples(arm, measure);
            let of = match measure {
                Measure::Ttft => Wanted::FirstTokens,
                Measure::Errors => Wanted::Requests,
            };
            [
                (of, samples.count(), self.rule.least.max(1)),
                (Wanted::SessionGroups, samples.groups(), MIN_GROUPS as u64),
            ]
            .map(|(of, have, need)| Shortage {
                measure,
                arm,
                of,
                have,
                need,
            })
        });
        shortages
            .filter(|shortage| shortage.have < shortage.need)
            .collect()
    }

    /// Runs a look if it is due. Returns the canary if it is worse.
    fn look(&mut self, arm: usize, measure: Measure) -> Option<WorseArm> {
        let fewer = self.count(arm, measure).min(self.count(0, measure));
        if fewer < self.canaries[arm - 1][measure as usize].next_at {
            return None;
        }
        let number = self.canaries[arm - 1][measure as usize].looks + 1;
        let look = self.compare(arm, measure, number)?;
        let series = &mut self.canaries[arm - 1][measure as usize];
        series.looks = number;
        // Counts of other routers may be wrong. The doubling ends at the largest number.
        while series.next_at <= fewer && series.next_at < u64::MAX {
            series.next_at = series.next_at.saturating_mul(2);
        }
        series.last = Some(look);
        (look.verdict == CanaryVerdict::Worse).then_some(WorseArm {
            arm,
            cause: StopCause::Compared(measure, look),
        })
    }

    /// Compares a canary by the samples of all routers, with the error probability of the look of this number.
    fn compare(&self, arm: usize, measure: Measure, number: u32) -> Option<Look> {
        let (ours, theirs) = (&self.samples(arm, measure), &self.samples(0, measure));
        let alpha = (1.0 - self.rule.confidence) / 2.0;
        let look = f64::from(number);
        let alpha = alpha / (look * (look + 1.0));
        let (difference, margin) = match measure {
            Measure::Ttft => (difference_of_means(ours, theirs, alpha)?, self.rule.ttft_margin),
            Measure::Errors => (difference_of_shares(ours, theirs, alpha)?, self.rule.error_margin),
        };
        let difference = match measure {
            Measure::Ttft => as_ratios(difference),
            Measure::Errors => difference,
        };
        Some(Look {
            estimate: difference.estimate,
            low: difference.low,
            high: difference.high,
            number,
            samples: ours.count(),
            control_samples: theirs.count(),
            verdict: verdict(difference, margin),
        })
    }

    /// Returns the latest look at a canary.
    #[must_use]
    pub fn last(&self, arm: usize, measure: Measure) -> Option<Look> {
        let series = self.canaries.get(arm.checked_sub(1)?)?;
        series[measure as usize].last
    }

    /// Returns the summary of an arm.
    #[must_use]
    pub fn summary(&self, arm: usize) -> ArmSummary {
        let samples = &self.arms[arm];
        ArmSummary {
            requests: samples.requests,
            judged: samples.errors.count(),
            failed: samples.failed,
            failed_in_a_row: samples.failed_in_a_row,
            ttft: samples.ttft.report(),
            between: samples.between.report(),
            prompt_tokens: samples.prompt_tokens,
            cached_tokens: samples.cached_tokens,
        }
    }
}

/// Converts a difference of logarithms to a ratio minus 1.
fn as_ratios(logs: Difference) -> Difference {
    Difference {
        estimate: logs.estimate.exp_m1(),
        low: logs.low.exp_m1(),
        high: logs.high.exp_m1(),
    }
}

fn verdict(difference: Difference, margin: f64) -> CanaryVerdict {
    if difference.low > margin {
        CanaryVerdict::Worse
    } else if difference.high < 0.0 {
        CanaryVerdict::Better
    } else if difference.high <= margin {
        CanaryVerdict::NoWorse
    } else {
        CanaryVerdict::Undecided
    }
}

impl ArmSamples {
    fn samples(&self, measure: Measure) -> &Samples {
        match measure {
            Measure::Ttft => &self.logs,
            Measure::Errors => &self.errors,
        }
    }

    fn add(&mut self, group: u8, result: &RequestResult) {
        self.requests += 1;
        if let Some(seconds) = result.ttft {
            self.ttft.add(seconds);
            self.logs.add(group, seconds.max(f64::MIN_POSITIVE).ln());
        }
        if let Some(failed) = result.failed {
            self.failed += u64::from(failed);
            self.failed_in_a_row = if failed { self.failed_in_a_row + 1 } else { 0 };
            self.errors.add(group, u8::from(failed).into());
        }
        if let Some(seconds) = result.between {
            self.between.add(seconds);
        }
        if let Some((prompt, cached)) = result.cached {
            self.prompt_tokens = self.prompt_tokens.saturating_add(prompt);
            self.cached_tokens = self.cached_tokens.saturating_add(cached);
        }
    }
}

#[cfg(test)]
mod tests;
