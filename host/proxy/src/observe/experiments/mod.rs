//! Experiments of routes: a control policy, and canaries that decide a share of the requests.
//!
//! [`Trial`] assigns a request to an arm once, by its session. [`Enrollment`] observes one request and records its
//! result. The `experiment` crate compares the arms. A route without canaries has no experiment.

mod collector;
mod enrollment;
mod metrics;
mod report;
mod spec;
mod trial;

pub(crate) use self::collector::encode_trials;
pub(crate) use self::enrollment::Enrollment;
pub(crate) use self::metrics::ArmFamilies;
pub use self::spec::{CanarySpec, ShadowSpec, TrialSpec};
pub(crate) use self::trial::{HeldRequests, Trial, TrialParts};
pub use self::trial::{SharedArm, TrialShare};
