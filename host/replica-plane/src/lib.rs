//! Exchange of loads between the routers of a fleet, and their agreement on decisions.
//!
//! [`Exchange::run`] is the only task: it publishes this router's gauges, applies those of the others, and ages the
//! silent ones. Requests read only the sums in the workers' loads, so they never wait for the bus.

mod agreement;
mod exchange;
mod metrics;
mod report;
mod source;
mod usage;

pub use self::agreement::{
    AgreedHandle, AgreedView, AgreementMetrics, AgreementParts, AgreementReport, AgreementTask, ArmFacts,
    EntryRow, ObjectState, SharedTrial, StopOrder, TrialFacts, TrialSource, ViewEntry,
};
pub use exchange::{Exchange, ExchangeParts, ExchangeSpec};
pub use metrics::ExchangeMetrics;
pub use report::{ReplicaReport, ReplicaReports, RouterRow};
pub use source::{ElsewhereNews, FleetSource, SharedPool, UsageGroup};
