//! Integration tests of the proxy over real sockets: small workers behind it, and a plain client in front.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's own functions fail by panicking too"
)]

mod bodies;
mod budgets;
mod catalog;
mod client;
mod client_fields;
mod clients;
mod clock;
mod compressed;
mod crashes;
mod cut;
mod early_rejection;
mod endpoints;
mod expectation;
mod features;
mod fronts;
mod health;
mod held_back;
mod http2;
mod http2_workers;
mod listen;
mod log;
mod measures;
mod memory;
mod moves;
mod overdue;
mod pair;
mod pending;
mod place_seam;
mod placement;
mod policy;
mod queue;
mod record;
mod relay;
mod requests;
mod responses;
mod router;
mod server;
mod shadow;
mod tokenizer;
mod tokens;
mod trial;
mod worker;

use std::time::{Duration, Instant};

/// Test timeout, reached only by a defect.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time longer than any test.
const HOUR: Duration = Duration::from_hours(1);

/// Waits until a condition holds.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        clock::moment().await;
    }
}
