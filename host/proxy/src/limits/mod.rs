//! Limits: admission, clients' rate limits, memory and bytes of bodies, retry budgets, the pace of
//! starts, settings of the edge.

pub(crate) mod admission;
pub(crate) mod bodies;
pub(crate) mod clients;
pub(crate) mod edge_settings;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod retries;
pub(crate) mod start_pace;
