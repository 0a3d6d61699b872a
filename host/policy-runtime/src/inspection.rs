//! Inspection of a component without decisions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::FeaturePlan;
use wasmtime::Engine;
use wasmtime::component::types::ComponentExtern;

use crate::contract::{self, FoundInterface, Mismatches};
use crate::engine::PolicyEngine;
use crate::load::{PolicyIntroduction, introduce};
use crate::load_error::LoadError;
use crate::parameters::Parameter;
use crate::policy::Manifest;
use crate::settings::PolicySettings;

/// An interface that a component imports or exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentInterface {
    /// Full name, such as `conductor:policy/host@0.1.0`.
    pub name: String,
    /// Functions; empty for one of types only, and for other items.
    pub functions: Vec<String>,
}

/// Imports and exports of a component.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// Imports.
    pub imports: Vec<ComponentInterface>,
    /// Exports.
    pub exports: Vec<ComponentInterface>,
    /// Differences from the contract; `None` if it matches.
    pub mismatches: Option<Mismatches>,
    /// Compile time (real time).
    pub compiled_in: Duration,
}

/// A policy's own description under some parameters.
#[derive(Debug, Clone)]
pub struct DescribedPolicy {
    /// Name and version.
    pub manifest: Manifest,
    /// Parameters; `None` if it does not describe them.
    pub parameters: Option<Vec<Parameter>>,
    /// Requested features of the request, as the policy names them.
    pub request_features: Vec<String>,
    /// Requested features of a candidate, as the policy names them.
    pub candidate_features: Vec<String>,
    /// The requested features as resolved by the router.
    pub features: FeaturePlan,
    /// The policy scores candidates.
    pub scores: bool,
    /// Subscribed kinds of events, as the policy names them; `None` for none.
    pub events: Option<Vec<String>>,
    /// The policy has a timer.
    pub ticks: bool,
}

impl PolicyEngine {
    /// Compiles a component and compares it with the contract. Nothing of it runs.
    ///
    /// # Errors
    /// [`LoadError`] if the bytes are not a component.
    pub fn inspect(&self, bytes: &[u8]) -> Result<Inspection, LoadError> {
        let start = Instant::now();
        let component = self.compile_uncached(bytes)?;
        let compiled_in = start.elapsed();
        let ty = component.component_type();
        Ok(Inspection {
            imports: interfaces(&self.engine, ty.imports(&self.engine)),
            exports: interfaces(&self.engine, ty.exports(&self.engine)),
            mismatches: contract::compare(&self.engine, &component).err(),
            compiled_in,
        })
    }

    /// Calls a policy's `describe`, `parameters` and `configure` under `settings`, with a state of its own.
    ///
    /// # Errors
    /// The [`LoadError`]s of all steps before the first decision.
    pub fn describe(&self, bytes: &[u8], settings: &PolicySettings) -> Result<DescribedPolicy, LoadError> {
        let blueprint = self.blueprint(&Arc::from("interviewed"), bytes, settings)?;
        let (_, introduction) = introduce(&blueprint, settings)?;
        Ok(introduction.into())
    }
}

impl DescribedPolicy {
    /// Returns `true` if a pipeline can use the policy as a scorer, see [`routing::scores_singly`].
    #[must_use]
    pub fn scores_singly(&self) -> bool {
        self.scores && !self.features.pairs()
    }
}

impl From<PolicyIntroduction> for DescribedPolicy {
    fn from(introduction: PolicyIntroduction) -> Self {
        Self {
            manifest: introduction.manifest,
            parameters: introduction.parameters,
            request_features: introduction.plan.request_features,
            candidate_features: introduction.plan.candidate_features,
            features: introduction.features,
            scores: introduction.scores,
            events: introduction
                .optional_calls
                .subscription
                .map(|wanted| wanted.names),
            ticks: introduction.optional_calls.ticks,
        }
    }
}

fn interfaces<'a>(
    engine: &Engine,
    items: impl Iterator<Item = (&'a str, ComponentExtern<'a>)>,
) -> Vec<ComponentInterface> {
    let interface = |(name, item): (&str, ComponentExtern<'_>)| {
        let FoundInterface { name, functions } = FoundInterface::new(engine, name, &item.ty);
        ComponentInterface { name, functions }
    };
    items.map(interface).collect()
}
