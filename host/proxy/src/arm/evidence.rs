//! What the arms of one route did to their requests, and when that is enough to say a canary is worse. No clock, no metrics.
//!
//! Two things are compared between each canary and the control: the logarithm of the time to first token, so that a margin is a
//! ratio and one slow request does not outweigh a hundred, and the share of requests that failed. A comparison is looked at only
//! when the smaller side has `least` samples, twice as many, four times as many and so on. What may be wrong in all, one less
//! the confidence, is spent half on either comparison, and there on look number k (from 0) the share 1/((k+1)(k+2)): these add
//! up to 1, so that however long a canary runs, the chance that one as good as the control is ever called worse stays below
//! what was asked for (an alpha-spending sequence; Lan and DeMets, Biometrika 70, 1983).
//!
//! That takes samples. A canary that answers nothing at all is stopped before: after so many failed requests in a row, while the
//! newest one of the control did not fail.

use crate::arm::statistics::{Difference, FEWEST_GROUPS, Samples, difference_of_means, difference_of_shares};
use crate::arm::times::{Times, TimesReport};

/// When a canary is worse than the control, and what is done then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StopRule {
    /// By how much longer its first tokens may take, as a share: 0.1 is a tenth longer (in the geometric mean).
    pub ttft_margin: f64,
    /// By how much its share of failed requests may be larger: 0.01 is one more in a hundred.
    pub error_margin: f64,
    /// How sure one must be, below 1.
    pub confidence: f64,
    /// Samples of the canary and of the control before the first look, at least 1.
    pub least: u64,
    /// Failed requests in a row after which it is worse at once, while the control does not fail; 0: none are.
    pub consecutive_failures: u64,
    /// Whether it is stopped; else it is only told.
    pub stop: bool,
}

impl Default for StopRule {
    fn default() -> Self {
        Self {
            ttft_margin: 0.1,
            error_margin: 0.01,
            confidence: 0.95,
            least: 200,
            consecutive_failures: 5,
            stop: true,
        }
    }
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Logarithm of the seconds to the first token.
    Ttft,
    /// Share of failed requests.
    Errors,
}

impl Measure {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Errors => "errors",
        }
    }
}

/// What a comparison says so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// There was no look yet.
    TooFew,
    /// It may be either.
    Undecided,
    /// Not worse by more than the margin.
    NoWorse,
    /// Better.
    Better,
    /// Worse by more than the margin.
    Worse,
}

impl Finding {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooFew => "too-few",
            Self::Undecided => "undecided",
            Self::NoWorse => "no-worse",
            Self::Better => "better",
            Self::Worse => "worse",
        }
    }

    /// Of a canary, from those of both its measures.
    #[must_use]
    pub fn of(ttft: Self, errors: Self) -> Self {
        match (ttft, errors) {
            (Self::Worse, _) | (_, Self::Worse) => Self::Worse,
            (Self::TooFew, _) | (_, Self::TooFew) => Self::TooFew,
            (Self::Undecided, _) | (_, Self::Undecided) => Self::Undecided,
            (Self::NoWorse, Self::NoWorse) => Self::NoWorse,
            (Self::Better, _) | (_, Self::Better) => Self::Better,
        }
    }
}

/// The newest look at one measure of a canary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// How much more the canary has: seconds as a ratio less 1, shares as they are.
    pub estimate: f64,
    /// Lower end of what it may be.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Looks so far, this one included.
    pub number: u32,
    /// Samples of the canary.
    pub samples: u64,
    /// Samples of the control.
    pub control_samples: u64,
    /// What it says.
    pub finding: Finding,
}

/// One request at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Ended {
    /// Seconds to the first token; for a client that left a stream before, the seconds it waited: it would have been no less.
    pub(crate) ttft: Option<f64>,
    /// Whether it failed; none where that was up to the client or the router.
    pub(crate) failed: Option<bool>,
    /// Seconds between two tokens.
    pub(crate) between: Option<f64>,
    /// Prompt tokens and how many of them were cached, where the worker told both.
    pub(crate) cached: Option<(u64, u64)>,
}

/// All requests of one arm.
#[derive(Debug, Default)]
struct Side {
    logs: Samples,
    errors: Samples,
    ttft: Times,
    between: Times,
    requests: u64,
    failed: u64,
    /// The newest requests that failed, without one between them that did not.
    failed_in_a_row: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
}

/// What is told of one arm's requests since the comparison began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SideReport {
    /// Requests that are over.
    pub requests: u64,
    /// Of those, the ones that failed.
    pub failed: u64,
    /// The newest ones that failed, without one between them that did not.
    pub failed_in_a_row: u64,
    /// Times to first token of streamed answers, of clients that left before it too; none while there are none.
    pub ttft: Option<TimesReport>,
    /// Times between two tokens.
    pub between: Option<TimesReport>,
    /// Prompt tokens of answers whose usage tells them and the cached ones.
    pub prompt_tokens: u64,
    /// Of those, tokens the worker had cached.
    pub cached_tokens: u64,
}

/// One measure of one canary against the control.
#[derive(Debug, Clone, Copy)]
struct Series {
    /// Samples of the smaller side at which to look next.
    next_at: u64,
    looks: u32,
    last: Option<Look>,
}

/// Of every arm of a route; the control is number 0.
#[derive(Debug)]
pub(crate) struct Evidence {
    rule: StopRule,
    sides: Box<[Side]>,
    /// Of arms 1 and up.
    canaries: Box<[[Series; 2]]>,
}

/// A canary that was found to be worse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Worse {
    /// Its number.
    pub(crate) arm: usize,
    pub(crate) cause: Cause,
}

/// Why a canary is worse than its control.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cause {
    /// So many of its requests in a row failed, and the control's newest one did not.
    ConsecutiveFailures(u64),
    /// A comparison says so.
    Compared(Measure, Look),
}

/// Condition of a comparison that is not fulfilled yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The comparison.
    pub measure: Measure,
    /// The arm that has too few; the control is 0.
    pub arm: usize,
    /// What there are too few of.
    pub of: Wanted,
    /// How many there are.
    pub have: u64,
    /// How many it takes.
    pub need: u64,
}

/// What a comparison takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Requests that ended well or failed.
    Requests,
    /// Streamed answers whose first token was seen.
    FirstTokens,
    /// Groups of sessions with requests, of 64.
    SessionGroups,
}

impl Wanted {
    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::FirstTokens => "first-tokens",
            Self::SessionGroups => "session-groups",
        }
    }
}

const MEASURES: [Measure; 2] = [Measure::Ttft, Measure::Errors];

impl Evidence {
    /// Nothing is known of `arms` arms, the control included.
    pub(crate) fn new(rule: StopRule, arms: usize) -> Self {
        let series = Series {
            next_at: rule.least.max(1),
            looks: 0,
            last: None,
        };
        Self {
            rule,
            sides: (0..arms).map(|_| Side::default()).collect(),
            canaries: (1..arms).map(|_| [series; 2]).collect(),
        }
    }

    /// A request of that arm and group of sessions ended. Gives the canaries that this look found to be worse.
    pub(crate) fn add(&mut self, arm: usize, group: u8, ended: &Ended) -> Vec<Worse> {
        self.sides[arm].add(group, ended);
        // A request of the control may be the one that any of them waited for.
        let concerned = if arm == 0 {
            1..self.sides.len()
        } else {
            arm..arm + 1
        };
        let mut worse: Vec<Worse> = concerned
            .clone()
            .filter_map(|canary| self.fails(canary))
            .collect();
        let looks = concerned.flat_map(|canary| MEASURES.map(|measure| (canary, measure)));
        worse.extend(looks.filter_map(|(canary, measure)| self.look(canary, measure)));
        worse
    }

    /// Returns a canary whose newest requests failed, where there are enough of them and the control's newest one did not fail.
    pub(crate) fn fails(&self, arm: usize) -> Option<Worse> {
        let most = self.rule.consecutive_failures;
        let failed = self.sides[arm].failed_in_a_row;
        let is_worse = arm > 0 && most > 0 && failed >= most && self.sides[0].failed_in_a_row == 0;
        is_worse.then_some(Worse {
            arm,
            cause: Cause::ConsecutiveFailures(failed),
        })
    }

    /// Returns what the comparisons of a canary that had no look yet wait for.
    pub(crate) fn shortages(&self, arm: usize) -> Vec<Shortage> {
        let Some(series) = arm.checked_sub(1).and_then(|canary| self.canaries.get(canary)) else {
            return Vec::new();
        };
        let unseen = MEASURES
            .into_iter()
            .filter(|measure| series[*measure as usize].last.is_none());
        let sides = unseen.flat_map(|measure| [(measure, 0), (measure, arm)]);
        let shortages = sides.flat_map(|(measure, arm)| {
            let samples = self.sides[arm].samples(measure);
            let of = match measure {
                Measure::Ttft => Wanted::FirstTokens,
                Measure::Errors => Wanted::Requests,
            };
            [
                (of, samples.count(), self.rule.least.max(1)),
                (Wanted::SessionGroups, samples.groups(), FEWEST_GROUPS as u64),
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

    /// Looks, if it is time to. Gives what was found if that is worse.
    fn look(&mut self, arm: usize, measure: Measure) -> Option<Worse> {
        let (side, control) = (&self.sides[arm], &self.sides[0]);
        let series = &mut self.canaries[arm - 1][measure as usize];
        let (ours, theirs) = (side.samples(measure), control.samples(measure));
        let fewer = ours.count().min(theirs.count());
        if fewer < series.next_at {
            return None;
        }
        let alpha = (1.0 - self.rule.confidence) / 2.0;
        let look = f64::from(series.looks);
        let alpha = alpha / ((look + 1.0) * (look + 2.0));
        let (difference, margin) = match measure {
            Measure::Ttft => (difference_of_means(ours, theirs, alpha)?, self.rule.ttft_margin),
            Measure::Errors => (difference_of_shares(ours, theirs, alpha)?, self.rule.error_margin),
        };
        let difference = match measure {
            Measure::Ttft => as_ratios(difference),
            Measure::Errors => difference,
        };
        series.looks += 1;
        while series.next_at <= fewer {
            series.next_at = series.next_at.saturating_mul(2);
        }
        let look = Look {
            estimate: difference.estimate,
            low: difference.low,
            high: difference.high,
            number: series.looks,
            samples: ours.count(),
            control_samples: theirs.count(),
            finding: finding(difference, margin),
        };
        series.last = Some(look);
        (look.finding == Finding::Worse).then_some(Worse {
            arm,
            cause: Cause::Compared(measure, look),
        })
    }

    /// The newest look at a canary.
    pub(crate) fn last(&self, arm: usize, measure: Measure) -> Option<Look> {
        let series = self.canaries.get(arm.checked_sub(1)?)?;
        series[measure as usize].last
    }

    /// What is told of an arm.
    pub(crate) fn report(&self, arm: usize) -> SideReport {
        let side = &self.sides[arm];
        SideReport {
            requests: side.requests,
            failed: side.failed,
            failed_in_a_row: side.failed_in_a_row,
            ttft: side.ttft.report(),
            between: side.between.report(),
            prompt_tokens: side.prompt_tokens,
            cached_tokens: side.cached_tokens,
        }
    }
}

/// Of logarithms a difference is a ratio.
fn as_ratios(logs: Difference) -> Difference {
    Difference {
        estimate: logs.estimate.exp_m1(),
        low: logs.low.exp_m1(),
        high: logs.high.exp_m1(),
    }
}

fn finding(difference: Difference, margin: f64) -> Finding {
    if difference.low > margin {
        Finding::Worse
    } else if difference.high < 0.0 {
        Finding::Better
    } else if difference.high <= margin {
        Finding::NoWorse
    } else {
        Finding::Undecided
    }
}

impl Side {
    fn samples(&self, measure: Measure) -> &Samples {
        match measure {
            Measure::Ttft => &self.logs,
            Measure::Errors => &self.errors,
        }
    }

    fn add(&mut self, group: u8, ended: &Ended) {
        self.requests += 1;
        if let Some(seconds) = ended.ttft {
            self.ttft.add(seconds);
            self.logs.add(group, seconds.max(f64::MIN_POSITIVE).ln());
        }
        if let Some(failed) = ended.failed {
            self.failed += u64::from(failed);
            self.failed_in_a_row = if failed { self.failed_in_a_row + 1 } else { 0 };
            self.errors.add(group, u8::from(failed).into());
        }
        if let Some(seconds) = ended.between {
            self.between.add(seconds);
        }
        if let Some((prompt, cached)) = ended.cached {
            self.prompt_tokens = self.prompt_tokens.saturating_add(prompt);
            self.cached_tokens = self.cached_tokens.saturating_add(cached);
        }
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;
