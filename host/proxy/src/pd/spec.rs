//! How the two legs of a disaggregated pool are run.

use std::time::Duration;

use routing::Dialect;

use crate::metrics::PdMetrics;

/// Of a pool whose requests may be split between a prefill and a decode worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PdSpec {
    /// What its workers speak.
    pub dialect: Dialect,
    /// Whether a decode worker may do the whole of a request: where a policy says so, and where no prefill worker can be had.
    pub alone: bool,
    /// For a connection to a worker.
    pub connect_timeout: Duration,
    /// From the dispatch of the prefill leg to the end of its answer.
    pub prefill_timeout: Duration,
    /// From the dispatch of the decode leg to the first byte of its answer's body.
    pub first_token_timeout: Duration,
    /// Longest silence in the middle of the decode leg's answer.
    pub idle_timeout: Duration,
}

/// The same in a snapshot.
#[derive(Debug)]
pub(crate) struct PdPool {
    pub(crate) spec: PdSpec,
    pub(crate) metrics: PdMetrics,
}
