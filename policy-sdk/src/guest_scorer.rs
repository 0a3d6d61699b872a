//! Between the generated bindings and [`Scorer`]: what [`crate::export_scorer!`] expands to calls these.

use std::sync::OnceLock;

use crate::event::{Events, Tick};
use crate::guest::{
    self, Candidates, Event, Imports, Manifest, Parameter, Plan, Request, exported, plan, seen,
};
use crate::scorer::{self, ConfiguredScorer, Scorer};

pub use crate::bindings::score::exports::conductor::policy::score::Guest as ScoreExport;

/// Who the scorer is.
#[must_use]
pub fn describe<S: Scorer>() -> Manifest {
    Manifest {
        name: S::NAME.to_owned(),
        version: S::VERSION.to_owned(),
    }
}

/// What its parameters are.
#[must_use]
pub fn parameters<S: Scorer>() -> Vec<Parameter> {
    exported(scorer::scorer_parameters::<S>())
}

/// The instance's scorer, once `configure` has made it.
pub struct Instance<S>(OnceLock<ConfiguredScorer<S>>);

impl<S: Scorer> Instance<S> {
    /// Not configured yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "made once, in a static")]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Configures this instance.
    ///
    /// # Errors
    /// Text for the operator; also where the instance is configured already.
    pub fn configure(&self, params: &str) -> Result<Plan, String> {
        let configured = ConfiguredScorer::<S>::new(params)?;
        let plan = plan(configured.plan());
        self.0
            .set(configured)
            .map_err(|_| "this instance is configured already".to_owned())?;
        Ok(plan)
    }

    /// Scores the candidates of one request; without an opinion where the instance is not configured.
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

impl<S: Scorer + Events> Instance<S> {
    /// Tells it some events; none where the instance is not configured.
    pub fn handle(&self, batch: &[Event]) {
        if let Some(configured) = self.0.get() {
            guest::tell(configured.scorer(), batch);
        }
    }
}

impl<S: Scorer + Tick> Instance<S> {
    /// Has it work by the clock; an hour's pause where the instance is not configured.
    #[must_use]
    pub fn tick(&self) -> u32 {
        guest::tick(self.0.get().map(ConfiguredScorer::scorer))
    }
}
