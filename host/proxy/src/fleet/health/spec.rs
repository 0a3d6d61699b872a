//! When a pool's workers are kept away from, and how they come back.

use std::time::Duration;

use http::uri::PathAndQuery;

/// The rules of one pool.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthSpec {
    /// How workers are asked whether they are well; none where they are not.
    pub probe: Option<ProbeSpec>,
    /// Failures to answer in a row after which a worker rests; at least 1.
    pub failures: u32,
    /// Answers of 500 or more in a row that count like that; 0 for none.
    pub server_errors: u32,
    /// Share of failures and of answers of 500 or more at which a worker rests, up to 1.
    pub failure_share: f64,
    /// In which that share is taken.
    pub failure_window: Duration,
    /// Fewest requests a share is taken of; 0: no worker rests for its share.
    pub failure_min_requests: u32,
    /// Largest share of the pool's workers that rest for what they answered, up to 1. Those that do not answer always do.
    pub most_ejected: f64,
    /// The first rest; each further one is twice as long.
    pub rest: Duration,
    /// The longest.
    pub longest_rest: Duration,
    /// In which a worker that came back is offered a rising share of the requests; zero for all of them at once.
    pub slow_start: Duration,
    /// Names of workers that get no new requests; those they have go on.
    pub draining: Vec<Box<str>>,
}

/// How a worker is asked whether it is well.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeSpec {
    /// Asked for with GET.
    pub path: PathAndQuery,
    /// How often, give or take a tenth.
    pub interval: Duration,
    /// For the whole answer.
    pub timeout: Duration,
    /// Failed probes in a row after which it gets no requests.
    pub unhealthy_after: u32,
    /// Good ones in a row after which it gets them again.
    pub healthy_after: u32,
}

impl Default for HealthSpec {
    /// No probes.
    fn default() -> Self {
        Self {
            probe: None,
            failures: 1,
            server_errors: 0,
            failure_share: 0.5,
            failure_window: Duration::from_secs(10),
            failure_min_requests: 20,
            most_ejected: 0.5,
            rest: Duration::from_secs(1),
            longest_rest: Duration::from_secs(30),
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
