//! Builders for tests of the whole router: a fleet of mock engines, the router the binary starts, and a client.
//!
//! A test is a sequence of steps: start a fleet, start a router over it, send, look. Everything binds port 0 and lives
//! in the test's process.

mod client;
mod fleet;
mod otlp;
mod policies;
mod poll;
mod program;
mod random;
mod refused;
mod router;
mod seen;
mod split_fleet;
mod steady;

pub use client::{Answer, Client, Stream};
pub use fleet::{Fleet, route_all, worker_toml, workers_toml};
pub use otlp::{OtlpReceiver, attribute};
pub use policies::{
    HOSTILE, Hostile, avoids_failed_workers, favours, recovers_after, scores_too_few, sends_to,
    spins_at_events, traps_at_events, traps_scoring,
};
pub use poll::{DEADLINE, eventually, eventually_ok};
pub use program::{ProgramRun, RouterProcess};
pub use random::Random;
pub use refused::refused_address;
pub use router::{TestRouter, workers_checked};
pub use seen::{End, Seen};
pub use split_fleet::SplitFleet;
pub use steady::{Steady, Taken};
