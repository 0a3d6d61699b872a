//! Tests of the service over real sockets, with an index of its own and no publishers.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod access;
mod cache;
mod formats;
mod not_current;
mod query;
mod refusals;
mod register;
mod service;
