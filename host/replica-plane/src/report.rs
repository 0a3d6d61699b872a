//! Report on the fleet's routers, for the admin pages.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

/// The fleet as this router sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReplicaReport {
    /// Name of the fleet.
    pub fleet: String,
    /// Set while the bus is connected.
    pub connected: bool,
    /// This router.
    pub own: RouterRow,
    /// The other routers, by their id.
    pub others: Vec<RouterRow>,
}

/// A router.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RouterRow {
    /// Identity of its run.
    pub router: String,
    /// Configured name; `None` before its first hello.
    pub name: Option<String>,
    /// Version of its program.
    pub version: Option<String>,
    /// State: `starting`, `ready`, `draining`, or `silent`.
    pub state: &'static str,
    /// Milliseconds since its newest message was sent.
    pub silence_ms: u64,
    /// Delay of its newest message in milliseconds.
    pub delay_ms: u64,
    /// Requests in flight that count.
    pub requests: u64,
    /// Set if its pools and workers are those of this router.
    pub same_fleet: Option<bool>,
    /// Set if its configuration file is that of this router.
    pub same_config: Option<bool>,
    /// Its workers that this router does not have.
    pub unknown_workers: usize,
}

/// The latest report.
#[derive(Debug, Clone, Default)]
pub struct ReplicaReports(Arc<Mutex<Option<ReplicaReport>>>);

impl ReplicaReports {
    pub(crate) fn set(&self, report: ReplicaReport) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    /// Returns the report; `None` before the first.
    #[must_use]
    pub fn get(&self) -> Option<ReplicaReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
