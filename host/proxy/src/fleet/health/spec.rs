//! Health rules of a pool: when its workers are ejected and how they return. Also the queries for their load.

use std::time::Duration;

use http::uri::PathAndQuery;

/// Health rules of one pool.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthSpec {
    /// Health probe of the workers. `None` where they are not probed.
    pub probe: Option<ProbeSpec>,
    /// Consecutive failures to answer after which a worker is ejected; at least 1.
    pub failures: u32,
    /// Consecutive answers of 500 or more after which a worker is ejected; 0 for none.
    pub server_errors: u32,
    /// Share of failures and of answers of 500 or more at which a worker is ejected, up to 1.
    pub failure_share: f64,
    /// Time window of that share.
    pub failure_window: Duration,
    /// Fewest requests a share is taken of; 0: no worker is ejected for its share.
    pub failure_min_requests: u32,
    /// Largest share of the pool's workers that may be ejected for their answers, up to 1. A worker that does not
    /// answer is always ejected.
    pub most_ejected: f64,
    /// Base ejection time. Each further ejection is twice as long.
    pub base_ejection_time: Duration,
    /// Maximum ejection time.
    pub max_ejection_time: Duration,
    /// Slow start: the time over which a worker that returned gets a rising share of the requests. Zero for all of them
    /// at once.
    pub slow_start: Duration,
    /// Names of workers that get no new requests. Requests under way go on.
    pub draining: Vec<Box<str>>,
}

/// Parameters of a health probe.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeSpec {
    /// Path of the GET request.
    pub path: PathAndQuery,
    /// Interval of the probes, give or take a tenth.
    pub interval: Duration,
    /// Timeout for the whole answer.
    pub timeout: Duration,
    /// Consecutive failed probes after which a worker gets no requests.
    pub unhealthy_after: u32,
    /// Consecutive good probes after which it gets them again.
    pub healthy_after: u32,
}

impl Default for HealthSpec {
    /// Returns rules without probes.
    fn default() -> Self {
        Self {
            probe: None,
            failures: 1,
            server_errors: 0,
            failure_share: 0.5,
            failure_window: Duration::from_secs(10),
            failure_min_requests: 20,
            most_ejected: 0.5,
            base_ejection_time: Duration::from_secs(1),
            max_ejection_time: Duration::from_secs(30),
            slow_start: Duration::from_secs(10),
            draining: Vec::new(),
        }
    }
}

impl Default for ProbeSpec {
    fn default() -> Self {
        Self {
            path: PathAndQuery::from_static("/health"),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            unhealthy_after: 3,
            healthy_after: 2,
        }
    }
}

/// Parameters of the queries for the load of a pool's workers.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrapeSpec {
    /// Path of the GET request.
    pub path: PathAndQuery,
    /// Interval of the scrapes, give or take a tenth.
    pub interval: Duration,
    /// Timeout for the whole page.
    pub timeout: Duration,
}

impl Default for ScrapeSpec {
    fn default() -> Self {
        Self {
            path: PathAndQuery::from_static("/metrics"),
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
        }
    }
}
