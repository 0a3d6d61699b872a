//! Handling of requests: from the parsed head to the end of the response.

pub(crate) mod body_facts;
pub(crate) mod body_reader;
mod collectors;
pub(crate) mod cut;
pub(crate) mod fleet_report;
pub(crate) mod fleet_sample;
pub(crate) mod handle;
pub(crate) mod isolation;
pub(crate) mod keep_alive;
pub(crate) mod lifecycle;
pub(crate) mod lookup;
mod meter;
pub(crate) mod metrics;
pub(crate) mod model_list;
pub(crate) mod place;
pub(crate) mod pool_share;
mod prepare;
pub(crate) mod realtime;
pub(crate) mod relay_error;
pub(crate) mod response_body;
pub(crate) mod responses;
pub(crate) mod route;
pub(crate) mod snapshot;
pub(crate) mod stream;
pub(crate) mod trace;
