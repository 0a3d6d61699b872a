//! A/B experiments between policies: assignment of sessions to arms, evidence, statistics and the stop rule.
//!
//! A route's own policy is the control. Canaries decide a share of its sessions ([`assign`]). Each request of an arm is
//! observed ([`RequestObserver`]), and [`Evidence`] compares the arms. The crate is pure: no clock, no metrics, no
//! HTTP.

mod assignment;
mod evidence;
mod histogram;
mod observation;
mod report;
mod rule;
mod statistics;
mod totals;

pub use assignment::{ARM_SHARES, Assignment, assign};
pub use evidence::{ArmSummary, Evidence, WorseArm};
pub use histogram::TimesReport;
pub use observation::{RequestEnd, RequestObserver, RequestResult};
pub use report::{ArmReport, StopReport, TrialReport};
pub use rule::{CanaryVerdict, Look, Measure, Shortage, StopCause, StopRule, Wanted};
pub use totals::{ArmTotals, EvidenceTotals, LookTotals};
