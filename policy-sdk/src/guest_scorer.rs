//! Glue between the generated bindings and [`Scorer`], called by the expansion of [`crate::export_scorer!`].

use std::sync::OnceLock;

use crate::event::{Events, Tick};
use crate::guest::{
    self, Candidates, Event, Imports, Manifest, Parameter, Plan, Request, exported, plan, seen,
};
use crate::scorer::{self, ConfiguredScorer, Scorer};

pub use crate::bindings::score::exports::conductor::policy::score::Guest as ScoreExport;

/// Returns the scorer's name and version.
#[must_use]
pub fn describe<S: Scorer>() -> Manifest {
    Manifest {
        name: S::NAME.to_owned(),
        version: S::VERSION.to_owned(),
    }
}

/// Returns the scorer's parameters.
#[must_use]
pub fn parameters<S: Scorer>() -> Vec<Parameter> {
    exported(scorer::scorer_parameters::<S>())
}

/// Scorer of one instance, set by `configure`.
pub struct ScorerInstance<S>(OnceLock<ConfiguredScorer<S>>);

impl<S: Scorer> ScorerInstance<S> {
    /// Creates an instance that is not configured yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "created once, in a static")]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Configures this instance.
    ///
    /// # Errors
    ///
    /// Text for the operator: mistakes in the parameters, or a second call of `configure`.
    pub fn configure(&self, params: &str) -> Result<Plan, String> {
        let configured = ConfiguredScorer::<S>::new(params)?;
        let plan = plan(configured.plan());
        self.0
            .set(configured)
            .map_err(|_| "this instance is configured already".to_owned())?;
        Ok(plan)
    }

    /// Scores the candidates of one request; all scores are NaN if the instance is not configured.
    #[must_use]
    pub fn score(&self, request: &Request, candidates: &Candidates) -> Vec<f64> {
        match self.0.get() {
            Some(configured) => {
                configured.score(seen(request), &candidates.ids, &candidates.numbers, &Imports)
            }
            None => vec![f64::NAN; candidates.ids.len()],
        }
    }
}

impl<S: Scorer + Events> ScorerInstance<S> {
    /// Delivers a batch of events; ignored if the instance is not configured.
    pub fn handle(&self, batch: &[Event]) {
        if let Some(configured) = self.0.get() {
            guest::deliver(configured.scorer(), batch);
        }
    }
}

impl<S: Scorer + Tick> ScorerInstance<S> {
    /// Runs the periodic task. Returns one hour if the instance is not configured.
    #[must_use]
    pub fn tick(&self) -> u32 {
        guest::tick(self.0.get().map(ConfiguredScorer::scorer))
    }
}
