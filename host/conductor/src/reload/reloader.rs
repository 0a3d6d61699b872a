//! State of the reload thread.

use admin_pages::control::Status;
use conductor_config::Config;
use local_files::ConfigSource;
use policy_store::PolicyLibrary;

use super::refused_workers::RefusedWorkers;
use super::{ActiveConfig, AgreedFollower, CircuitWatch, Journal, Live, Steps};
use crate::metrics::ControlMetrics;

/// Reloader: the state that a reload works on. Each module of this folder adds a part of its work.
pub(crate) struct Reloader {
    pub(crate) source: ConfigSource,
    pub(crate) library: PolicyLibrary,
    pub(crate) steps: Steps,
    pub(crate) live: Live,
    pub(crate) status: Status,
    pub(crate) metrics: ControlMetrics,
    pub(crate) journal: Journal,
    /// Circuits at the last look.
    pub(crate) circuits: CircuitWatch,
    /// Configuration of the start: some keys are read only then.
    pub(crate) at_start: Config,
    pub(crate) active: ActiveConfig,
    /// Workers of the sources that could not be applied beside the active configuration.
    pub(crate) refused_discovery: Option<RefusedWorkers>,
    /// Decisions of the fleet, if this router has one.
    pub(crate) agreed: Option<AgreedFollower>,
}
