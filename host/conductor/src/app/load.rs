//! Loading of the configuration, its resources and its policies, before the router is set up.

use std::sync::Arc;

use tracing::{error, warn};

use super::{BuildError, RuntimeOptions};
use crate::compose;
use crate::reload::{self, ActiveConfig, RefusedConfig, RefusedPlan, Steps};
use local_files::ConfigSource;
use observability::error_chain;
use policy_store::{OVERRIDES, PolicyLibrary, PolicyMemory, policy_engine};
use runtime_overrides::RouteOverrides;

/// Loaded configuration, policies and memory.
pub(super) struct LoadedPolicies {
    /// Active configuration to be.
    pub(super) active: ActiveConfig,
    pub(super) library: PolicyLibrary,
    pub(super) memory: Arc<PolicyMemory>,
}

/// Reads it, off the threads that serve.
pub(super) async fn load(
    source: &ConfigSource,
    options: RuntimeOptions,
) -> Result<LoadedPolicies, BuildError> {
    let source = source.clone();
    let loaded = tokio::task::spawn_blocking(move || load_blocking(&source, &options)).await;
    loaded.map_err(BuildError::Load)?
}

fn load_blocking(source: &ConfigSource, options: &RuntimeOptions) -> Result<LoadedPolicies, BuildError> {
    let mut active = read(source)?;
    let engine = policy_engine(&active.config, source, &options.engine).map_err(BuildError::Engine)?;
    let memory = Arc::new(PolicyMemory::new(compose::state_folder(&active.config, source)));
    let mut library = PolicyLibrary::new(engine, Arc::clone(&memory));
    restore_routes(&mut active, &memory, source);
    if let Err(refused) = load_policies(&mut library, &active, source) {
        if active.overlays.routes().is_empty() {
            return Err(BuildError::Config(refused));
        }
        error!(
            error = error_chain(&refused),
            "the route overrides of the last run cannot be applied: the configuration file is used"
        );
        active.overlays = active.overlays.with_routes(RouteOverrides::default());
        active.config = active.file.clone();
        load_policies(&mut library, &active, source).map_err(BuildError::Config)?;
    }
    Ok(LoadedPolicies {
        active,
        library,
        memory,
    })
}

/// Reads the configuration and its resources, without its policies.
fn read(source: &ConfigSource) -> Result<ActiveConfig, BuildError> {
    let text = source.read()?;
    let parsed = reload::read(source, &text).map_err(RefusedConfig::Invalid);
    let parsed = parsed.map_err(BuildError::Config)?;
    reload::log_warnings(&parsed.warnings);
    let config = parsed.config;
    let resources = reload::read_resources(&Steps::default(), None, (&config, source, &text))
        .map_err(RefusedPlan::into_reason)
        .map_err(BuildError::Config)?;
    Ok(ActiveConfig::first(text, config, resources))
}

/// Restores the overrides of routes of the last run, unless the file changed these routes.
fn restore_routes(active: &mut ActiveConfig, memory: &PolicyMemory, source: &ConfigSource) {
    let Some(folder) = memory.folder() else {
        return;
    };
    let (name, ending) = OVERRIDES;
    let saved = match folder.get(name, ending) {
        Ok(Some(file)) => RouteOverrides::decode(&file).ok_or_else(|| "its file is damaged".to_owned()),
        Ok(None) => return,
        Err(error) => Err(error_chain(&error)),
    };
    let saved = match saved {
        Ok(saved) => saved,
        Err(why) => {
            error!(
                why,
                "the route overrides of the last run are not restored: the configuration file is used"
            );
            return;
        }
    };
    let (left, ended) = saved.under(&active.file);
    for policy in ended {
        warn!(
            policy,
            "the file changed a route with a route override: the override is removed"
        );
    }
    if compose::policy_folder(&active.file, source).is_none() && left.needs_folder(&active.file) {
        error!(
            "the route overrides of the last run need `policy-dir`, which is not set: the configuration file is used"
        );
        return;
    }
    active.overlays = active.overlays.with_routes(left);
    active.config = active.overlays.over(&active.file);
}

fn load_policies(
    library: &mut PolicyLibrary,
    ActiveConfig { config, text, .. }: &ActiveConfig,
    source: &ConfigSource,
) -> Result<(), RefusedConfig> {
    library.restore_rollbacks(&compose::wanted_policies(config, source));
    let prepared = library.prepare_settled(|| compose::wanted_policies(config, source));
    let unavailable = reload::unavailable_policies((config, source, text), &prepared);
    if !unavailable.is_empty() {
        return Err(RefusedConfig::Policies(unavailable));
    }
    library.commit(prepared).log();
    Ok(())
}
