//! Stop rule, and the findings of a comparison.

/// Margins, confidence and reaction of a route's comparisons.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StopRule {
    /// Tolerated increase of the time to first token: 0.1 is 10 % in the geometric mean.
    pub ttft_margin: f64,
    /// Tolerated increase of the failure rate: 0.01 is one percentage point.
    pub error_margin: f64,
    /// Confidence level, below 1.
    pub confidence: f64,
    /// Samples of each arm before the first look, at least 1.
    pub least: u64,
    /// Fewest consecutive failures after which a canary is worse at once, if the control's results meanwhile rule out
    /// chance. 0: disabled.
    pub consecutive_failures: u64,
    /// Set if a worse canary is stopped. Otherwise it is only reported.
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

/// Compared measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Logarithm of the time to first token in seconds.
    Ttft,
    /// Failure rate.
    Errors,
}

impl Measure {
    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Errors => "errors",
        }
    }
}

/// Verdict on a canary: result of its comparison with the control so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanaryVerdict {
    /// No look yet.
    TooFew,
    /// Not decided.
    Undecided,
    /// Not worse beyond the margin.
    NoWorse,
    /// Better.
    Better,
    /// Worse beyond the margin.
    Worse,
}

impl CanaryVerdict {
    /// Returns its name.
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

    /// Combines the verdicts of both measures.
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

/// Look (interim analysis) at one measure of a canary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// Estimated difference to the control: times as a ratio minus 1, rates as they are.
    pub estimate: f64,
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Number of this look, from 1.
    pub number: u32,
    /// Samples of the canary.
    pub samples: u64,
    /// Samples of the control.
    pub control_samples: u64,
    /// Verdict of this look.
    pub verdict: CanaryVerdict,
}

/// Reason for which a canary is worse than its control.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StopCause {
    /// Consecutive failures, beside results of the control that rule out chance.
    ConsecutiveFailures {
        /// Consecutive failures of the canary.
        failures: u64,
        /// Results of the control since the first of them.
        control: u64,
        /// Failures among those.
        control_failed: u64,
    },
    /// Result of a comparison.
    Compared(Measure, Look),
}

/// Unmet precondition of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The comparison.
    pub measure: Measure,
    /// Arm with too few. The control is 0.
    pub arm: usize,
    /// Missing quantity.
    pub of: Wanted,
    /// Present number.
    pub have: u64,
    /// Required number.
    pub need: u64,
}

/// Quantity required by a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Requests that succeeded or failed.
    Requests,
    /// Streamed responses with a first token.
    FirstTokens,
    /// Session groups with requests, of 64.
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
