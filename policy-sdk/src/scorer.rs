//! The scorer trait: a policy that rates each candidate and leaves the choice to a pipeline.

use crate::call::{Call, Request, WorkerId};
use crate::host::Host;
use crate::params::{Parameter, Params};
use crate::plan::Plan;

/// Scorer of the router's pipelines. Used alone it is a policy that routes to the candidate with the highest
/// score.
///
/// ```
/// use conductor_policy_sdk::{Call, Column, Host, Params, Plan, Scorer, export_scorer};
///
/// /// Prefers workers with fewer requests in flight.
/// struct Idle {
///     requests: Column,
/// }
///
/// impl Scorer for Idle {
///     const NAME: &'static str = "idle";
///     const VERSION: &'static str = env!("CARGO_PKG_VERSION");
///
///     fn configure(_: &mut Params, plan: &mut Plan) -> Self {
///         Self { requests: plan.column("load.requests") }
///     }
///
///     fn score(&self, call: &Call<'_>, _: &impl Host) -> Vec<f64> {
///         call.scores(|row| -row.get(self.requests))
///     }
/// }
///
/// export_scorer!(Idle);
/// ```
pub trait Scorer: Sized + Send + Sync + 'static {
    /// Name of the scorer.
    const NAME: &'static str;
    /// Version of the scorer; `env!("CARGO_PKG_VERSION")` is the crate's.
    const VERSION: &'static str;

    /// Reads the parameters and requests the numbers, as [`Policy::configure`](crate::Policy::configure).
    ///
    /// It must not request [`Plan::roles`]: a pipeline calls once for each leg of a request, given in
    /// [`Request::phase`].
    fn configure(params: &mut Params, plan: &mut Plan) -> Self;

    /// Returns one number for each candidate, in row order: any unit, higher is better, NaN for no opinion.
    ///
    /// The pipeline normalises the scores of a call to 0..1 before it weighs them. The scores must depend on
    /// nothing but the arguments.
    fn score(&self, call: &Call<'_>, host: &impl Host) -> Vec<f64>;
}

/// Returns the parameters of a scorer, as described to the router.
#[must_use]
pub fn scorer_parameters<S: Scorer>() -> Vec<Parameter> {
    Params::describe(|params| {
        S::configure(params, &mut Plan::default());
    })
}

/// Scorer together with its plan.
#[derive(Debug, Clone)]
pub struct ConfiguredScorer<S> {
    scorer: S,
    plan: Plan,
}

impl<S: Scorer> ConfiguredScorer<S> {
    /// Configures a scorer from the JSON object of its parameters, as the router does once for each instance.
    ///
    /// # Errors
    ///
    /// All mistakes in the parameters, one a line, followed by the known parameters.
    pub fn new(params: &str) -> Result<Self, String> {
        let mut params = Params::parse(params)?;
        let mut plan = Plan::default();
        let scorer = S::configure(&mut params, &mut plan);
        params.finish()?;
        Ok(Self { scorer, plan })
    }

    /// Returns the scorer.
    #[must_use]
    pub fn scorer(&self) -> &S {
        &self.scorer
    }

    /// Returns the plan: the numbers that the scorer requests.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Scores the candidates of one request from `numbers`, laid out as the plan requests. All scores are NaN
    /// if their count does not match the plan.
    pub fn score(&self, request: Request, ids: &[WorkerId], numbers: &[f64], host: &impl Host) -> Vec<f64> {
        match Call::new(request, ids, numbers, &self.plan) {
            Some(call) => self.scorer.score(&call, host),
            None => vec![f64::NAN; ids.len()],
        }
    }
}

impl<S: Scorer> AsRef<S> for ConfiguredScorer<S> {
    fn as_ref(&self) -> &S {
        &self.scorer
    }
}
