//! Reports on overlays, for pages and metrics.

use conductor_config::WorkerConfig;
use serde::Serialize;

use super::{Ended, Overlay, Overlays};

/// Difference of an instance from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverlayKind {
    /// Instance that only the overlay has.
    Added,
    /// Instance of the file that the overlay removes.
    Removed,
    /// Instance whose role differs from the file's.
    Role,
    /// Instance that differs from the file's only in whether it drains.
    Drain,
}

impl OverlayKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Added, Self::Removed, Self::Role, Self::Drain];

    /// Returns its name on the pages and in the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Role => "role",
            Self::Drain => "drain",
        }
    }

    /// Returns the source of its workers, as `/status` shows it.
    pub fn source(self) -> &'static str {
        match self {
            Self::Added => "api",
            Self::Role => "api-role",
            Self::Drain => "api-drain",
            Self::Removed => "file",
        }
    }
}

/// An overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OverlayReport {
    /// Kind of the change.
    pub kind: OverlayKind,
    /// The instance's pool.
    pub pool: String,
    /// The instance's name.
    pub name: String,
    /// `http://host:port`.
    pub url: String,
    /// Active role; the file's role of a removed instance.
    pub role: &'static str,
}

/// An overlay that the newest file has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndedReport {
    /// The overlay.
    #[serde(flatten)]
    pub overlay: OverlayReport,
    /// Reason of the end.
    pub why: &'static str,
}

/// Returns `true` if the two differ in draining only.
fn is_drain(file: &WorkerConfig, now: &WorkerConfig) -> bool {
    let drained = WorkerConfig {
        drain: now.drain,
        ..file.clone()
    };
    drained == *now
}

impl Overlay {
    fn kind(&self) -> OverlayKind {
        match (&self.file, &self.now) {
            (None, _) => OverlayKind::Added,
            (Some(_), None) => OverlayKind::Removed,
            (Some(file), Some(now)) if is_drain(file, now) => OverlayKind::Drain,
            (Some(_), Some(_)) => OverlayKind::Role,
        }
    }

    fn report(&self) -> OverlayReport {
        let worker = self.worker();
        OverlayReport {
            kind: self.kind(),
            pool: self.pool.clone(),
            name: worker.name.clone(),
            url: worker.url.clone(),
            role: worker.role.as_str(),
        }
    }
}

impl Overlays {
    /// Returns all of them, in the order in which they were made.
    pub fn report(&self) -> Vec<OverlayReport> {
        self.all.iter().map(Overlay::report).collect()
    }
}

impl Ended {
    /// Returns the report for the pages and the log.
    pub fn report(&self) -> EndedReport {
        EndedReport {
            overlay: self.overlay.report(),
            why: self.why,
        }
    }
}
