//! Totals of an experiment's evidence, which routers of one fleet exchange: each adds up those of the others.

use serde::{Deserialize, Serialize};

/// Totals of one router's evidence.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EvidenceTotals {
    /// Samples by arm, the control first.
    pub arms: Vec<ArmTotals>,
    /// Looks of each canary, by measure: those at the time to first token, and at the failure rate.
    pub looks: Vec<[LookTotals; 2]>,
}

/// Samples of one arm, as count and sum by session group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArmTotals {
    /// Logarithms of the times to first token.
    pub ttft: Vec<(u64, f64)>,
    /// Failures.
    pub errors: Vec<(u64, f64)>,
}

/// Looks at one measure of a canary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookTotals {
    /// Looks so far.
    pub looks: u32,
    /// Samples of the smaller arm at the next look.
    pub next_at: u64,
}
