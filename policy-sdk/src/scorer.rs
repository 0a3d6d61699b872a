//! The trait of a policy that says how good each candidate is, and leaves the choice to a pipeline.

use crate::call::{Call, Request, WorkerId};
use crate::host::Host;
use crate::params::{Parameter, Params};
use crate::plan::Plan;

/// A scorer of the router's pipelines. By itself it is a policy too: it decides for the candidate with the highest score.
///
/// ```
/// use conductor_policy_sdk::{Call, Column, Host, Params, Plan, Scorer, export_scorer};
///
/// /// The shorter its queue, the better a worker.
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
    /// What it calls itself.
    const NAME: &'static str;
    /// Its version; `env!("CARGO_PKG_VERSION")` is the crate's.
    const VERSION: &'static str;

    /// As [`Policy::configure`](crate::Policy::configure). It must not ask for [`Plan::roles`]: a pipeline asks once for each leg
    /// of a request, and [`Request::phase`] says for which.
    fn configure(params: &mut Params, plan: &mut Plan) -> Self;

    /// One number a candidate, in row order: any unit, higher is better, NaN for no opinion. The pipeline brings the least and
    /// the greatest of a call to 0 and 1 before it weighs them. Must rely on nothing but its arguments.
    fn score(&self, call: &Call<'_>, host: &impl Host) -> Vec<f64>;
}

/// The parameters of a scorer, as the router is told of them.
#[must_use]
pub fn scorer_parameters<S: Scorer>() -> Vec<Parameter> {
    Params::describe(|params| {
        S::configure(params, &mut Plan::default());
    })
}

/// A scorer together with the numbers it asked for.
#[derive(Debug, Clone)]
pub struct ConfiguredScorer<S> {
    scorer: S,
    plan: Plan,
}

impl<S: Scorer> ConfiguredScorer<S> {
    /// Configures a scorer from the JSON object of its parameters, as the router does once for each instance.
    ///
    /// # Errors
    /// Every mistake in the parameters, one a line, and the parameters there are.
    pub fn new(params: &str) -> Result<Self, String> {
        let mut params = Params::parse(params)?;
        let mut plan = Plan::default();
        let scorer = S::configure(&mut params, &mut plan);
        params.finish()?;
        Ok(Self { scorer, plan })
    }

    /// The scorer itself.
    #[must_use]
    pub fn scorer(&self) -> &S {
        &self.scorer
    }

    /// The numbers it wants laid out.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Scores the candidates of one request from `numbers`, laid out as the plan asks. Has no opinion on any where their count is
    /// not the plan's.
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
