//! Loading: compiles, checks, configures and tries a component.

use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::{FaultKind, FeaturePlan, Origin, UnknownFeature, hex};
use sha2::{Digest, Sha256};

use crate::bindings::Plan;
use crate::budget::{CallBudget, SETUP};
use crate::contract;
use crate::engine::PolicyEngine;
use crate::exports::ExportIndices;
use crate::instance::{ComponentBlueprint, Instance, InstantiateError};
use crate::listener::{self, ListenerInstance, OptionalCalls};
use crate::listener_check;
use crate::load_error::LoadError;
use crate::parameters::{self, Parameter};
use crate::policy::{InstanceMaker, LoadReport, Manifest, WasmPolicy};
use crate::policy_log::PolicyLog;
use crate::probe::probe;
use crate::settings::PolicySettings;
use crate::slots::InstancePool;
use crate::state::PolicyState;
use crate::stats::PolicyCounters;
use crate::subscription::EventSubscription;
use crate::text::one_line;

/// Most features of a plan, of the request and of a candidate together. The router computes their product with the
/// candidates for every call.
const MAX_FEATURES: usize = 64;
/// Longest name or version of a manifest, in bytes.
const MAX_MANIFEST: usize = 256;
/// Longest refusal of `params` in a message, in bytes.
const MAX_MESSAGE: usize = 1024;

impl PolicyEngine {
    /// Loads a policy named `name` from a component. Its instances share `state`; pass the same state when the
    /// component is replaced.
    ///
    /// Blocks while it compiles (10 ms for Rust or C, seconds for an interpreter) and uses every core: call it on a
    /// thread of its own, never on one that serves requests.
    ///
    /// # Errors
    /// [`LoadError`] with the cause and the fix. Nothing remains of the component except writes of its `configure` to
    /// `state`.
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
        let budget = CallBudget {
            cpu: settings.cpu_budget,
            wall: settings.wall_limit,
        };
        // A busy machine may charge a trial for time that it did not have: a trial that exceeded its time is repeated
        // once.
        let tried = match try_out(&blueprint, settings) {
            Err(LoadError::Probe { source, .. }) if source.kind() == FaultKind::Deadline => {
                try_out(&blueprint, settings)
            }
            tried => tried,
        };
        let (introduction, decided_256_in) = tried?;
        let maker = Arc::new(InstanceMaker {
            blueprint,
            state,
            params: settings.params_json.clone(),
            plan: introduction.plan,
        });
        let start = Instant::now();
        // Dropped: each thread creates its own for its first decision.
        maker.make().map_err(LoadError::SecondInstance)?;
        let report = LoadReport {
            compiled_in,
            instantiated_in: start.elapsed(),
            decided_256_in,
        };
        let origin = Origin {
            sha256: hex(&Sha256::digest(bytes)).into(),
            params: settings.params_json.as_str().into(),
            version: introduction.manifest.version.as_str().into(),
        };
        let optional_calls = introduction.optional_calls;
        let listener = (!optional_calls.are_none()).then(|| {
            Arc::new(ListenerInstance::new(
                Arc::clone(&name),
                Arc::clone(&maker),
                optional_calls,
                settings,
            ))
        });
        Ok(WasmPolicy {
            name,
            listener,
            manifest: introduction.manifest,
            origin: Arc::new(origin),
            report,
            features: introduction.features,
            maker,
            budget,
            slots: InstancePool::new(self.limits.instances_per_policy as usize),
            counters: PolicyCounters::default(),
        })
    }

    /// Compiles a component, compares it with the contract and links it.
    pub(crate) fn blueprint(
        &self,
        name: &Arc<str>,
        bytes: &[u8],
        settings: &PolicySettings,
    ) -> Result<ComponentBlueprint, LoadError> {
        let (requested, most) = (settings.memory_bytes, self.limits.memory_bytes);
        if requested > most {
            return Err(LoadError::Memory { requested, most });
        }
        let component = self.compile(bytes)?;
        contract::compare(&self.engine, &component).map_err(LoadError::Contract)?;
        let types = |error: wasmtime::Error| LoadError::Types(error.into());
        let has = |interface: &str| contract::exports(&self.engine, &component, interface);
        let linked = self.linker.instantiate_pre(&component).map_err(types)?;
        let exports = ExportIndices::new(&linked, has).map_err(types)?;
        Ok(ComponentBlueprint {
            component: linked,
            exports: Arc::new(exports),
            ticker: Arc::clone(&self.ticker),
            memory_bytes: settings.memory_bytes,
            log: Arc::new(PolicyLog::new(Arc::clone(name))),
        })
    }
}

/// A policy's own description under some parameters.
pub(crate) struct PolicyIntroduction {
    pub(crate) manifest: Manifest,
    /// `None` if it does not describe them.
    pub(crate) parameters: Option<Vec<Parameter>>,
    pub(crate) plan: Plan,
    pub(crate) features: FeaturePlan,
    /// The policy exports `score`.
    pub(crate) scores: bool,
    pub(crate) optional_calls: OptionalCalls,
}

/// Configures an instance and makes decisions with it, over a state of its own: a trial must not change the real one.
/// Returns the time of the last decision.
fn try_out(
    blueprint: &ComponentBlueprint,
    settings: &PolicySettings,
) -> Result<(PolicyIntroduction, Duration), LoadError> {
    let (mut instance, introduction) = introduce(blueprint, settings)?;
    let took = probe(&mut instance, &introduction.features, trial_budget(settings))?;
    listener_check::probe(
        &mut instance,
        &introduction.optional_calls,
        listener::budget(settings),
    )?;
    Ok((introduction, took))
}

/// Returns the budget of a trial decision. No request waits, so real time is as long as for the rest of the load.
pub(crate) fn trial_budget(settings: &PolicySettings) -> CallBudget {
    CallBudget {
        cpu: settings.cpu_budget,
        ..SETUP
    }
}

/// Calls the description functions of an instance with a state of its own.
pub(crate) fn introduce(
    blueprint: &ComponentBlueprint,
    settings: &PolicySettings,
) -> Result<(Instance, PolicyIntroduction), LoadError> {
    let mut instance = instantiate(blueprint, Arc::default())?;
    let described = instance.describe().map_err(LoadError::Describe)?;
    let manifest = Manifest {
        name: one_line(&described.name, MAX_MANIFEST),
        version: one_line(&described.version, MAX_MANIFEST),
    };
    let parameters = parameters(&mut instance)?;
    if let Some(parameters) = &parameters {
        parameters::check(parameters, &settings.params_json).map_err(LoadError::ParamsRefused)?;
    }
    let plan = configure(&mut instance, &settings.params_json)?;
    let requested = plan.request_features.len() + plan.candidate_features.len();
    if requested > MAX_FEATURES {
        let most = MAX_FEATURES;
        return Err(LoadError::TooManyFeatures { requested, most });
    }
    let features =
        FeaturePlan::resolve(&plan.request_features, &plan.candidate_features).map_err(unknown_feature)?;
    if features.pairs() && !blueprint.exports.has_schedule() {
        return Err(LoadError::ScorerOfPairs);
    }
    let introduction = PolicyIntroduction {
        manifest,
        parameters,
        plan,
        features,
        scores: blueprint.exports.has_score(),
        optional_calls: optional_calls(&mut instance)?,
    };
    Ok((instance, introduction))
}

/// Returns the error of an unknown feature, whose name the policy chose.
fn unknown_feature(error: UnknownFeature) -> LoadError {
    let name = one_line(&error.name, MAX_MANIFEST);
    LoadError::Features(UnknownFeature { name, ..error })
}

fn instantiate(blueprint: &ComponentBlueprint, state: Arc<PolicyState>) -> Result<Instance, LoadError> {
    blueprint.instantiate(state).map_err(|error| match error {
        InstantiateError::Instantiate(failure) => LoadError::Instantiate {
            memory_bytes: blueprint.memory_bytes,
            failure,
        },
        InstantiateError::Types(error) => LoadError::Types(error.into()),
    })
}

fn parameters(instance: &mut Instance) -> Result<Option<Vec<Parameter>>, LoadError> {
    let described = instance.parameters().map_err(LoadError::AskParameters)?;
    described
        .map(Parameter::read_all)
        .transpose()
        .map_err(LoadError::Parameters)
}

fn optional_calls(instance: &mut Instance) -> Result<OptionalCalls, LoadError> {
    let names = instance.subscribe().map_err(LoadError::AskEvents)?;
    let subscription = names.map(EventSubscription::resolve).transpose();
    Ok(OptionalCalls {
        subscription: subscription.map_err(LoadError::Events)?,
        ticks: instance.has_tick(),
    })
}

fn configure(instance: &mut Instance, params: &str) -> Result<Plan, LoadError> {
    instance
        .configure(params)
        .map_err(LoadError::Configure)?
        .map_err(|message| LoadError::Params {
            message: one_line(&message, MAX_MESSAGE),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_feature_is_named_in_one_short_line() {
        let name = format!("\u{1b}[2J\n{}", "n".repeat(70_000));
        let known = vec![];
        let LoadError::Features(error) = unknown_feature(UnknownFeature { name, known }) else {
            panic!("another error");
        };
        assert_eq!(error.name.len(), MAX_MANIFEST);
        assert!(!error.name.contains(char::is_control));
    }
}
