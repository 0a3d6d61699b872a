//! From bytes to a policy that may decide: compile, compare, configure, try.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::{FaultKind, FeaturePlan, Origin};
use sha2::{Digest, Sha256};

use crate::bindings::Plan;
use crate::budget::{Budget, SETUP};
use crate::contract;
use crate::engine::PolicyEngine;
use crate::exports::ExportIndices;
use crate::instance::{Blueprint, Instance, Stillborn};
use crate::listener::{self, Listener, Wishes};
use crate::listening_trial;
use crate::load_error::LoadError;
use crate::parameters::{self, Parameter};
use crate::policy::{InstanceMaker, LoadReport, Manifest, WasmPolicy};
use crate::policy_log::PolicyLog;
use crate::probe::probe;
use crate::settings::PolicySettings;
use crate::slots::Slots;
use crate::state::PolicyState;
use crate::stats::Counters;
use crate::subscription::Subscription;

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
        // A busy machine may charge a trial for time that it did not have: one that ended for its time is tried once more.
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
        // Thrown away again: each thread makes its own when it first decides.
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
        let wishes = introduction.wishes;
        let listener = (!wishes.are_none()).then(|| {
            Arc::new(Listener::new(
                Arc::clone(&name),
                Arc::clone(&maker),
                wishes,
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
            slots: Slots::new(self.limits.instances_per_policy as usize),
            counters: Counters::default(),
        })
    }

    /// Compiles, compares with the contract and links.
    pub(crate) fn blueprint(
        &self,
        name: &Arc<str>,
        bytes: &[u8],
        settings: &PolicySettings,
    ) -> Result<Blueprint, LoadError> {
        let (asked, most) = (settings.memory_bytes, self.limits.memory_bytes);
        if asked > most {
            return Err(LoadError::Memory { asked, most });
        }
        let component = self.compile(bytes)?;
        contract::compare(&self.engine, &component).map_err(LoadError::Contract)?;
        let types = |error: wasmtime::Error| LoadError::Types(error.into());
        let has = |interface: &str| contract::exports(&self.engine, &component, interface);
        let linked = self.linker.instantiate_pre(&component).map_err(types)?;
        let exports = ExportIndices::new(&linked, has).map_err(types)?;
        Ok(Blueprint {
            component: linked,
            exports,
            ticker: Arc::clone(&self.ticker),
            memory_bytes: settings.memory_bytes,
            log: Arc::new(PolicyLog::new(Arc::clone(name))),
        })
    }
}

/// What a policy says of itself under some parameters.
pub(crate) struct Introduction {
    pub(crate) manifest: Manifest,
    /// None where it does not tell.
    pub(crate) parameters: Option<Vec<Parameter>>,
    pub(crate) plan: Plan,
    pub(crate) features: FeaturePlan,
    /// Whether it exports `score`.
    pub(crate) scores: bool,
    pub(crate) wishes: Wishes,
}

/// Configures an instance and has it decide, over a state of its own: a trial must not move the real one. The last decision's time is
/// told.
fn try_out(blueprint: &Blueprint, settings: &PolicySettings) -> Result<(Introduction, Duration), LoadError> {
    let (mut instance, introduction) = introduce(blueprint, settings)?;
    let took = probe(&mut instance, &introduction.features, trial_budget(settings))?;
    listening_trial::probe(&mut instance, &introduction.wishes, listener::budget(settings))?;
    Ok((introduction, took))
}

/// The budget of a decision on trial: no request waits, so real time is as free as in the rest of the load.
pub(crate) fn trial_budget(settings: &PolicySettings) -> Budget {
    Budget {
        cpu: settings.cpu_budget,
        ..SETUP
    }
}

/// Asks an instance with a state of its own who it is and what it wants to know.
pub(crate) fn introduce(
    blueprint: &Blueprint,
    settings: &PolicySettings,
) -> Result<(Instance, Introduction), LoadError> {
    let mut instance = instantiate(blueprint, Arc::default())?;
    let described = instance.describe().map_err(LoadError::Describe)?;
    let manifest = Manifest {
        name: cut(described.name, MAX_MANIFEST),
        version: cut(described.version, MAX_MANIFEST),
    };
    let parameters = parameters(&mut instance)?;
    if let Some(parameters) = &parameters {
        parameters::check(parameters, &settings.params_json).map_err(LoadError::ParamsRefused)?;
    }
    let plan = configure(&mut instance, &settings.params_json)?;
    let asked = plan.request_features.len() + plan.candidate_features.len();
    if asked > MAX_FEATURES {
        let most = MAX_FEATURES;
        return Err(LoadError::TooManyFeatures { asked, most });
    }
    let features = FeaturePlan::resolve(&plan.request_features, &plan.candidate_features)
        .map_err(LoadError::Features)?;
    if features.pairs() && !blueprint.exports.has_schedule() {
        return Err(LoadError::ScorerOfPairs);
    }
    let introduction = Introduction {
        manifest,
        parameters,
        plan,
        features,
        scores: blueprint.exports.has_score(),
        wishes: wishes(&mut instance)?,
    };
    Ok((instance, introduction))
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

fn parameters(instance: &mut Instance) -> Result<Option<Vec<Parameter>>, LoadError> {
    let described = instance.parameters().map_err(LoadError::AskParameters)?;
    described
        .map(Parameter::read_all)
        .transpose()
        .map_err(LoadError::Parameters)
}

fn wishes(instance: &mut Instance) -> Result<Wishes, LoadError> {
    let names = instance.subscribe().map_err(LoadError::AskEvents)?;
    let subscription = names.map(Subscription::resolve).transpose();
    Ok(Wishes {
        subscription: subscription.map_err(LoadError::Events)?,
        ticks: instance.has_tick(),
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

pub(crate) fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
