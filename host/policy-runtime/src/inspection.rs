//! What a component is, told without having it decide.

use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::FeaturePlan;
use wasmtime::Engine;
use wasmtime::component::types::ComponentExtern;

use crate::contract::{self, Found, Mismatches};
use crate::engine::PolicyEngine;
use crate::load::{Introduction, introduce};
use crate::load_error::LoadError;
use crate::parameters::Parameter;
use crate::policy::Manifest;
use crate::settings::PolicySettings;

/// An interface that a component imports or exports, and what of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its full name, such as `conductor:policy/host@0.1.0`.
    pub name: String,
    /// Its functions; empty for one of types only, and for what is no interface.
    pub functions: Vec<String>,
}

/// What a component wants and offers.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// What it imports.
    pub imports: Vec<Interface>,
    /// What it exports.
    pub exports: Vec<Interface>,
    /// How it differs from the contract; none where it fits.
    pub mismatches: Option<Mismatches>,
    /// Real time of compiling.
    pub compiled_in: Duration,
}

/// What a policy says of itself under some parameters.
#[derive(Debug, Clone)]
pub struct Interview {
    /// Who it says it is.
    pub manifest: Manifest,
    /// The parameters it takes; none where it does not tell.
    pub parameters: Option<Vec<Parameter>>,
    /// Features of the request that it asks for, as it names them.
    pub request_features: Vec<String>,
    /// Features of a candidate that it asks for, as it names them.
    pub candidate_features: Vec<String>,
    /// The same as the router resolves them.
    pub features: FeaturePlan,
    /// Whether it says how good each candidate is.
    pub scores: bool,
    /// Kinds of events that it wants to be told, as it names them; none where it wants none.
    pub events: Option<Vec<String>>,
    /// Whether it works by the clock.
    pub ticks: bool,
}

impl PolicyEngine {
    /// Looks at a component: compiles it and compares it with the contract. Nothing of it runs.
    ///
    /// # Errors
    /// [`LoadError`] where the bytes are no component.
    pub fn inspect(&self, bytes: &[u8]) -> Result<Inspection, LoadError> {
        let start = Instant::now();
        let component = self.compile_anew(bytes)?;
        let compiled_in = start.elapsed();
        let ty = component.component_type();
        Ok(Inspection {
            imports: interfaces(&self.engine, ty.imports(&self.engine)),
            exports: interfaces(&self.engine, ty.exports(&self.engine)),
            mismatches: contract::compare(&self.engine, &component).err(),
            compiled_in,
        })
    }

    /// Asks a policy who it is and what it wants to know under `settings`, over a state of its own.
    ///
    /// # Errors
    /// [`LoadError`] up to where the policy would be asked to decide.
    pub fn interview(&self, bytes: &[u8], settings: &PolicySettings) -> Result<Interview, LoadError> {
        let blueprint = self.blueprint(&Arc::from("interviewed"), bytes, settings)?;
        let (_, introduction) = introduce(&blueprint, settings)?;
        Ok(introduction.into())
    }
}

impl Interview {
    /// Whether a pipeline may have it as a scorer, as [`routing::scores_singly`] has it.
    #[must_use]
    pub fn scores_singly(&self) -> bool {
        self.scores && !self.features.pairs()
    }
}

impl From<Introduction> for Interview {
    fn from(introduction: Introduction) -> Self {
        Self {
            manifest: introduction.manifest,
            parameters: introduction.parameters,
            request_features: introduction.plan.request_features,
            candidate_features: introduction.plan.candidate_features,
            features: introduction.features,
            scores: introduction.scores,
            events: introduction.wishes.subscription.map(|wanted| wanted.names),
            ticks: introduction.wishes.ticks,
        }
    }
}

fn interfaces<'a>(
    engine: &Engine,
    items: impl Iterator<Item = (&'a str, ComponentExtern<'a>)>,
) -> Vec<Interface> {
    let interface = |(name, item): (&str, ComponentExtern<'_>)| {
        let Found { name, functions } = Found::new(engine, name, &item.ty);
        Interface { name, functions }
    };
    items.map(interface).collect()
}
