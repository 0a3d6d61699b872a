//! From bytes to a policy that may decide: compile, compare, configure, try.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::FeaturePlan;
use sha2::{Digest, Sha256};

use crate::bindings::{Plan, SchedulerIndices};
use crate::budget::{Budget, SETUP};
use crate::engine::PolicyEngine;
use crate::instance::{Blueprint, Instance, Stillborn};
use crate::load_error::LoadError;
use crate::policy::{InstanceMaker, LoadReport, Manifest, WasmPolicy};
use crate::policy_log::PolicyLog;
use crate::probe::probe;
use crate::settings::PolicySettings;
use crate::slots::Slots;
use crate::state::PolicyState;
use crate::stats::Counters;
use crate::{component, contract};

/// Features a plan may have: of the request and of a candidate together. The router lays out their product with
/// the candidates for every call.
const MAX_FEATURES: usize = 64;
/// Longest name or version of a manifest, in bytes.
const MAX_MANIFEST: usize = 256;
/// Longest refusal of `params` that is shown, in bytes.
const MAX_MESSAGE: usize = 1024;

impl PolicyEngine {
    /// Makes a policy named `name` from a component. Its instances remember in `state`; hand in the same one
    /// when the component is replaced.
    ///
    /// Blocks for as long as the compiler takes (10 ms for Rust or C, seconds for an interpreter) and uses every
    /// core: call it on a thread of its own, never on one that carries requests.
    ///
    /// # Errors
    /// [`LoadError`] with the cause and the cure; nothing of the component stays behind but what its `configure`
    /// may have written to `state`.
    pub fn load(
        &self,
        name: &str,
        bytes: &[u8],
        settings: &PolicySettings,
        state: Arc<PolicyState>,
    ) -> Result<WasmPolicy, LoadError> {
        let name: Arc<str> = name.into();
        let start = Instant::now();
        let blueprint = self.blueprint(&name, bytes, settings)?;
        let compiled_in = start.elapsed();
        let budget = Budget {
            cpu: settings.cpu_budget,
            wall: settings.wall_limit,
        };
        let trial = try_out(&blueprint, settings)?;
        let maker = InstanceMaker {
            blueprint,
            state,
            params: settings.params_json.clone(),
            plan: trial.plan,
        };
        let start = Instant::now();
        // Thrown away again: each thread makes its own when it first decides.
        maker.make().map_err(LoadError::SecondInstance)?;
        let report = LoadReport {
            compiled_in,
            instantiated_in: start.elapsed(),
            decided_256_in: trial.decided_256_in,
        };
        Ok(WasmPolicy {
            name,
            manifest: trial.manifest,
            sha256: hex(&Sha256::digest(bytes)),
            report,
            features: trial.features,
            maker,
            budget,
            slots: Slots::new(self.limits.instances_per_policy as usize),
            counters: Counters::default(),
        })
    }

    /// Compiles, compares with the contract and links.
    fn blueprint(
        &self,
        name: &Arc<str>,
        bytes: &[u8],
        settings: &PolicySettings,
    ) -> Result<Blueprint, LoadError> {
        let (asked, most) = (settings.memory_bytes, self.limits.memory_bytes);
        if asked > most {
            return Err(LoadError::Memory { asked, most });
        }
        let component = component::compile(&self.engine, bytes)?;
        contract::compare(&self.engine, &component).map_err(LoadError::Contract)?;
        let types = |error: wasmtime::Error| LoadError::Types(error.into());
        let component = self.linker.instantiate_pre(&component).map_err(types)?;
        let exports = SchedulerIndices::new(&component).map_err(types)?;
        Ok(Blueprint {
            component,
            exports,
            memory_bytes: settings.memory_bytes,
            log: Arc::new(PolicyLog::new(Arc::clone(name))),
        })
    }
}

/// What the instance on trial said.
struct Trial {
    manifest: Manifest,
    plan: Plan,
    features: FeaturePlan,
    decided_256_in: Duration,
}

/// Configures an instance and has it decide, over a state of its own: a trial must not move the real one.
fn try_out(blueprint: &Blueprint, settings: &PolicySettings) -> Result<Trial, LoadError> {
    let mut instance = instantiate(blueprint, Arc::default())?;
    let described = instance.describe().map_err(LoadError::Describe)?;
    let manifest = Manifest {
        name: cut(described.name, MAX_MANIFEST),
        version: cut(described.version, MAX_MANIFEST),
    };
    let plan = configure(&mut instance, &settings.params_json)?;
    let asked = plan.request_features.len() + plan.candidate_features.len();
    if asked > MAX_FEATURES {
        let most = MAX_FEATURES;
        return Err(LoadError::TooManyFeatures { asked, most });
    }
    let features = FeaturePlan::resolve(&plan.request_features, &plan.candidate_features)
        .map_err(LoadError::Features)?;
    // No request waits here, so real time is as free as in the rest of the load.
    let budget = Budget {
        cpu: settings.cpu_budget,
        ..SETUP
    };
    let decided_256_in = probe(&mut instance, &features, budget)?;
    Ok(Trial {
        manifest,
        plan,
        features,
        decided_256_in,
    })
}

fn instantiate(blueprint: &Blueprint, state: Arc<PolicyState>) -> Result<Instance, LoadError> {
    blueprint.instantiate(state).map_err(|stillborn| match stillborn {
        Stillborn::Instantiate(failure) => LoadError::Instantiate {
            memory_bytes: blueprint.memory_bytes,
            failure,
        },
        Stillborn::Types(error) => LoadError::Types(error.into()),
    })
}

fn configure(instance: &mut Instance, params: &str) -> Result<Plan, LoadError> {
    instance
        .configure(params)
        .map_err(LoadError::Configure)?
        .map_err(|message| LoadError::Params {
            message: cut(message, MAX_MESSAGE),
        })
}

fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
