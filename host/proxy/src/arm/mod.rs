//! The arms of a route: its policy, which is the control, and canaries that decide a share of its requests beside it.
//!
//! [`Trial`] settles which arm a request is in, once, by its session; [`Participant`] is one request's part in it, which
//! tells at its end what became of it; `evidence.rs` compares the arms and `statistics.rs` has the formulas. A route without canaries
//! has none of this.

mod collector;
mod evidence;
mod metrics;
mod participant;
mod report;
mod spec;
mod statistics;
mod times;
mod trial;

pub(crate) use self::collector::TrialCollector;
pub use self::evidence::{Cause, Finding, Look, Measure, Shortage, SideReport, StopRule, Wanted};
pub(crate) use self::metrics::ArmFamilies;
pub(crate) use self::participant::Participant;
pub use self::report::{ArmReport, StopReport, TrialReport};
pub use self::spec::{CanarySpec, ShadowSpec, TrialSpec};
pub use self::times::TimesReport;
pub(crate) use self::trial::{BUCKETS, Place, Trial, TrialParts};
