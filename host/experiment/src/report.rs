//! Reports of experiments.

use std::sync::Arc;
use std::time::SystemTime;

use crate::evidence::ArmSummary;
use crate::rule::{CanaryVerdict, Look, Shortage, StopCause, StopRule};

/// Experiment of one route.
#[derive(Debug, Clone)]
pub struct TrialReport {
    /// The route's number in the configuration, from 1.
    pub number: usize,
    /// The route's pool.
    pub pool: String,
    /// Matching rule of the route.
    pub route: String,
    /// Stop rule.
    pub rule: StopRule,
    /// Start of the comparison.
    pub since: SystemTime,
    /// Arms, the control first.
    pub arms: Vec<ArmReport>,
}

/// One arm of an experiment.
#[derive(Debug, Clone)]
pub struct ArmReport {
    /// Name of the policy in the configuration.
    pub policy: String,
    /// Active version at the start of the comparison.
    pub version: Arc<str>,
    /// Configured share of the sessions, up to 1.
    pub share: f64,
    /// Set for the control.
    pub is_control: bool,
    /// Results of its requests.
    pub side: ArmSummary,
    /// Verdict on a canary.
    pub verdict: CanaryVerdict,
    /// Latest look at the times to first token.
    pub ttft: Option<Look>,
    /// Latest look at the failure rate.
    pub errors: Option<Look>,
    /// Unmet preconditions of its comparisons.
    pub shortages: Vec<Shortage>,
    /// Reason and time, if it is stopped.
    pub stopped: Option<StopReport>,
}

/// Stop of a canary.
#[derive(Debug, Clone)]
pub struct StopReport {
    /// Reason; `None` if another router of the fleet decided.
    pub cause: Option<StopCause>,
    /// Margin that the comparison exceeded.
    pub margin: Option<f64>,
    /// Id of the other router that decided.
    pub by: Option<Box<str>>,
    /// Time.
    pub at: SystemTime,
}
