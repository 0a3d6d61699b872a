//! What a router reads before anything of it is set up: its configuration, what that names, and its policies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::BuildError;
use crate::compiled::policy_engine;
use crate::compose;
use crate::config_source::ConfigSource;
use crate::materials::Materials;
use crate::policy_library::PolicyLibrary;
use crate::policy_memory::PolicyMemory;
use crate::reload::{self, InForce, RefusedConfig};

/// What was read.
pub(super) struct Loaded {
    /// As it will be in force.
    pub(super) in_force: InForce,
    pub(super) library: PolicyLibrary,
    pub(super) memory: Arc<PolicyMemory>,
}

/// Reads it, off the threads that serve.
pub(super) async fn load(source: &ConfigSource, compiled: Option<PathBuf>) -> Result<Loaded, BuildError> {
    let source = source.clone();
    let loaded = tokio::task::spawn_blocking(move || load_blocking(&source, compiled.as_deref())).await;
    loaded.map_err(BuildError::Load)?
}

fn load_blocking(source: &ConfigSource, compiled: Option<&Path>) -> Result<Loaded, BuildError> {
    let in_force = read(source)?;
    let engine = policy_engine((&in_force.config, source), compiled).map_err(BuildError::Engine)?;
    let memory = Arc::new(PolicyMemory::new(compose::state_folder(&in_force.config, source)));
    let mut library = PolicyLibrary::new(engine, Arc::clone(&memory));
    load_policies(&mut library, &in_force, source).map_err(BuildError::Config)?;
    Ok(Loaded {
        in_force,
        library,
        memory,
    })
}

/// The configuration, and all that it names but its policies.
fn read(source: &ConfigSource) -> Result<InForce, BuildError> {
    let text = source.read()?;
    let parsed = reload::read(source, &text).map_err(RefusedConfig::Invalid);
    let parsed = parsed.map_err(BuildError::Config)?;
    reload::log_warnings(&parsed.warnings);
    let config = parsed.config;
    let materials = Materials::read(None, (&config, source, &text)).map_err(BuildError::Config)?;
    Ok(InForce::first(text, config, materials))
}

fn load_policies(
    library: &mut PolicyLibrary,
    InForce { config, text, .. }: &InForce,
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
