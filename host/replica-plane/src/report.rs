//! Report on the fleet's routers, for the admin pages.

use std::sync::{Arc, Mutex, PoisonError};

use replicas::{FleetHashes, IndexFill, RouterId};
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
    /// Hashes of this router's fleet and configuration.
    #[serde(skip)]
    pub hashes: FleetHashes,
}

impl ReplicaReport {
    /// Returns the routers of the same fleet and configuration that are ready.
    #[must_use]
    pub fn twins(&self) -> Vec<RouterId> {
        let is_twin = |row: &&RouterRow| {
            row.state == "ready" && row.same_fleet == Some(true) && row.same_config == Some(true)
        };
        let twins = self.others.iter().filter(is_twin);
        twins.filter_map(|row| RouterId::parse(&row.router)).collect()
    }
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
    /// Times of its newest message.
    #[serde(flatten)]
    pub newest: NewestMessage,
    /// Requests in flight that count.
    pub requests: u64,
    /// Set if its pools and workers are those of this router.
    pub same_fleet: Option<bool>,
    /// Set if its configuration file is that of this router.
    pub same_config: Option<bool>,
    /// Its workers that this router does not have.
    pub unknown_workers: usize,
    /// Fill of its index at its start; `None` before its first hello.
    pub fill: Option<IndexFill>,
}

/// Times of a router's newest message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct NewestMessage {
    /// Milliseconds since it was sent.
    pub silence_ms: u64,
    /// Its delay in milliseconds.
    pub delay_ms: u64,
}

/// The latest report.
#[derive(Debug, Clone, Default)]
pub struct ReplicaReports(Arc<Mutex<Option<ReplicaReport>>>);

impl ReplicaReports {
    /// Replaces the report.
    pub fn set(&self, report: ReplicaReport) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    /// Returns the report; `None` before the first.
    #[must_use]
    pub fn get(&self) -> Option<ReplicaReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
