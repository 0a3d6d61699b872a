//! Queries for the model lists of a pool's workers.

use std::time::Duration;

use http::uri::PathAndQuery;

/// Parameters of the queries for a pool's model lists.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelListSpec {
    /// Path of the GET request.
    pub path: PathAndQuery,
    /// Interval of the queries, give or take a tenth.
    pub interval: Duration,
    /// Timeout for the whole list.
    pub timeout: Duration,
}

impl Default for ModelListSpec {
    fn default() -> Self {
        Self {
            path: PathAndQuery::from_static("/v1/models"),
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
        }
    }
}
