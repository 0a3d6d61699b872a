//! Observers: events, experiments and names of deciding policies.

pub(crate) mod decided_by;
pub(crate) mod events;
pub(crate) mod experiments;
pub(crate) mod pipeline_parts;
pub(crate) mod policies;
