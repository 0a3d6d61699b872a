//! Start-up settings: the parts of a router that only a restart changes, and the overrides of the last run.

use std::sync::Arc;

use conductor_config::Config;
use local_files::ConfigSource;
use observability::error_chain;
use policy_store::{EngineOptions, OVERRIDES, PolicyLibrary, PolicyMemory, policy_engine};
use runtime_overrides::{Overlays, RouteOverrides, SavedOverridesError};
use tracing::error;

use super::build_error::BuildError;
use crate::reload::{self, RefusedConfig};

/// Configuration text, and the parts that are made of its start-up settings.
pub(super) struct Startup {
    /// Text to plan.
    pub(super) text: String,
    /// Configuration of the text.
    pub(super) config: Config,
    /// Policies without a version. Rollbacks of the last run are restored.
    pub(super) library: PolicyLibrary,
    pub(super) memory: Arc<PolicyMemory>,
    /// Overrides of the last run.
    pub(super) overlays: Overlays,
}

impl Startup {
    /// Reads them from a text of the source, off the threads that serve.
    pub(super) async fn read(
        source: &ConfigSource,
        text: String,
        engine: EngineOptions,
    ) -> Result<Box<Self>, BuildError> {
        let source = source.clone();
        let read = tokio::task::spawn_blocking(move || Self::read_blocking(&source, text, &engine)).await;
        read.map_err(BuildError::Load)?
    }

    fn read_blocking(
        source: &ConfigSource,
        text: String,
        engine: &EngineOptions,
    ) -> Result<Box<Self>, BuildError> {
        let parsed = reload::read(source, &text).map_err(RefusedConfig::Invalid);
        let parsed = parsed.map_err(BuildError::Config)?;
        reload::log_warnings(&parsed.warnings);
        let config = parsed.config;
        let engine = policy_engine(&config, source, engine).map_err(BuildError::Engine)?;
        let memory = Arc::new(PolicyMemory::new(policy_store::state_folder(&config, source)));
        let saved = saved_overrides(&memory).filter(|saved| has_folder(saved, &config, source));
        let overlays = Overlays::default().with_routes(saved.unwrap_or_default());
        let mut library = PolicyLibrary::new(engine, Arc::clone(&memory));
        if config.replicas.is_some() {
            // The other routers may need them to go back to a version.
            library.keep_bytes();
        }
        let overridden = overlays.under(&config).0.over(&config);
        library.restore_rollbacks(&policy_store::wanted_policies(&overridden, source));
        Ok(Box::new(Self {
            text,
            config,
            library,
            memory,
            overlays,
        }))
    }
}

/// Reads the route overrides of the last run. An unreadable file is logged, an invalid one also put aside.
fn saved_overrides(memory: &PolicyMemory) -> Option<RouteOverrides> {
    let (name, ending) = OVERRIDES;
    let file = memory.folder()?.get(name, ending);
    let file = file.inspect_err(|error| {
        error!(
            why = error_chain(error),
            "the route overrides of the last run are not restored: the configuration file is used"
        );
    });
    let decoded = RouteOverrides::decode(&file.ok()??);
    let log = |why: &SavedOverridesError| {
        let aside = memory.put_overrides_aside();
        let put_aside = aside.map_or_else(|error| error_chain(&error), |path| path.display().to_string());
        error!(
            why = error_chain(why),
            put_aside,
            "the file of the route overrides of the last run is invalid: the configuration file is used"
        );
    };
    decoded.inspect_err(log).ok()
}

/// Returns true if the policies of the overrides can be found. Otherwise it is logged.
fn has_folder(saved: &RouteOverrides, file: &Config, source: &ConfigSource) -> bool {
    let (left, _) = saved.under(file);
    let found = policy_store::policy_folder(file, source).is_some() || !left.needs_folder(file);
    if !found {
        error!(
            "the route overrides of the last run need `policy-dir`, which is not set: the configuration file is used"
        );
    }
    found
}
