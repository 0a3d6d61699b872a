//! Exchange of loads between the routers of a fleet, and their agreement on decisions.
//!
//! [`Exchange::run`] publishes this router's gauges, applies those of the others, and ages the silent ones. Requests
//! read only the sums in the workers' loads, so they never wait for the bus. [`AgreementTask`] follows the decisions
//! of the fleet. [`IndexTransfer`] gives a router that starts what others know of the workers' caches.

mod agreement;
mod exchange;
mod fleet;
mod index_transfer;
mod metrics;
mod pace;
mod report;
mod source;
mod spec;
mod usage;

pub use self::agreement::{
    AgreedHandle, AgreedStart, AgreedView, AgreementMetrics, AgreementParts, AgreementReport, AgreementTask,
    ArmFacts, EntryRow, ObjectState, SharedTrial, StopOrder, TrialFacts, TrialSource, ViewEntry,
};
pub use exchange::{Exchange, ExchangeParts};
pub use index_transfer::{IndexContents, IndexTransfer, TransferMetrics, TransferParts, WantedFeed};
pub use metrics::ExchangeMetrics;
pub use report::{NewestMessage, ReplicaReport, ReplicaReports, RouterRow};
pub use source::{ElsewhereNews, FleetSource, SharedPool, UsageGroup};
pub use spec::ExchangeSpec;
