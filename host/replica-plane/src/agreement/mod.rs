//! Agreement of the routers of a fleet: its task, and its handle for the rest of the router.
//!
//! [`AgreementTask::run`] is its only task. It writes proposals and reports to the store, and follows its changes.
//! The reload thread and the pages read the [`AgreedView`] and propose decisions by the [`AgreedHandle`]: they never
//! wait for the store.

mod fetches;
mod handle;
mod metrics;
mod objects;
mod offers;
mod recent;
mod report;
mod start;
mod task;
mod trials;
mod view;

pub use handle::AgreedHandle;
pub use metrics::AgreementMetrics;
pub use objects::ObjectState;
pub use report::{AgreementReport, EntryRow};
pub use start::AgreedStart;
pub use task::{AgreementParts, AgreementTask};
pub use trials::{ArmFacts, SharedTrial, StopOrder, TrialFacts, TrialSource};
pub use view::{AgreedView, ViewEntry};
