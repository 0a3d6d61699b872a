//! Settings of a snapshot that its decisions need.

use std::sync::Arc;

use crate::observe::events::EventHub;
use crate::observe::spans::TracingSpec;
use crate::record::RecordSpec;

/// Settings of decisions.
#[derive(Debug)]
pub(crate) struct DecisionSettings {
    /// Set if answers report the deciding policy, the chosen worker, and how much of the prompt that worker holds.
    pub(crate) decision_headers: bool,
    /// Headers of requests that policies may read, in lower case.
    pub(crate) policy_headers: Box<[String]>,
    /// Settings of the decision log.
    pub(crate) record: RecordSpec,
    /// Settings of traces. `None` while they are off.
    pub(crate) traces: Option<Arc<TracingSpec>>,
    /// Event hub, the same one in every snapshot.
    pub(crate) events: Arc<EventHub>,
}
