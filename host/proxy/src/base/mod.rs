//! Leaves of the crate: types and functions that every folder can use.

pub(crate) mod address;
pub(crate) mod buckets;
pub(crate) mod current_state;
pub(crate) mod deadline;
pub(crate) mod headers;
pub(crate) mod idle_timeout;
pub(crate) mod in_place;
pub(crate) mod keep_alive;
pub(crate) mod label;
pub(crate) mod life;
pub(crate) mod metric_labels;
pub(crate) mod readiness;
pub(crate) mod reply;
pub(crate) mod request_id;
pub(crate) mod stable_hash;
pub(crate) mod throttle;
pub(crate) mod timeouts;
pub(crate) mod tls;
pub(crate) mod traced_family;
