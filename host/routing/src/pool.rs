//! Pool: a named set of interchangeable workers.

use std::sync::Arc;

use crate::worker::Worker;

/// Immutable; a reload makes a new one.
#[derive(Debug)]
pub struct Pool {
    /// Name in the configuration.
    pub name: Box<str>,
    /// Workers, in the order of the configuration.
    pub workers: Box<[Arc<Worker>]>,
}
