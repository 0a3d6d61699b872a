//! Observers: stage times, access records, notes for traces, events, experiments and names of deciding policies.

pub(crate) mod access;
pub(crate) mod decided_by;
pub(crate) mod edge_metrics;
pub(crate) mod events;
pub(crate) mod experiments;
pub(crate) mod exposition;
pub(crate) mod metrics;
pub(crate) mod pipeline_parts;
pub(crate) mod policies;
pub(crate) mod spans;
pub(crate) mod stages;
pub(crate) mod watch;
