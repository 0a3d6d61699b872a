//! The policy trait, and a configured policy with its plan.

use crate::call::{Call, Request, WorkerId};
use crate::host::Host;
use crate::params::{Parameter, Params};
use crate::plan::Plan;
use crate::verdict::Verdict;

/// Scheduling policy.
///
/// There are many short-lived instances, about one for each thread of the router. Lasting data belongs in the
/// host's state ([`Host::add_state`], [`Host::set_state`]).
pub trait Policy: Sized + Send + Sync + 'static {
    /// Name of the policy.
    const NAME: &'static str;
    /// Version of the policy; `env!("CARGO_PKG_VERSION")` is the crate's.
    const VERSION: &'static str;

    /// Reads the parameters and requests the numbers.
    ///
    /// It always returns a policy: mistakes in the parameters are collected in `params` and reported
    /// together.
    fn configure(params: &mut Params, plan: &mut Plan) -> Self;

    /// Decides one request within microseconds. It must depend on nothing but its arguments.
    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict;
}

/// Returns the parameters of a policy, as described to the router.
#[must_use]
pub fn parameters<P: Policy>() -> Vec<Parameter> {
    Params::describe(|params| {
        P::configure(params, &mut Plan::default());
    })
}

/// Policy together with its plan.
#[derive(Debug, Clone)]
pub struct Configured<P> {
    policy: P,
    plan: Plan,
}

impl<P: Policy> Configured<P> {
    /// Configures a policy from the JSON object of its parameters, as the router does once for each instance.
    ///
    /// # Errors
    ///
    /// All mistakes in the parameters, one a line, followed by the known parameters.
    pub fn new(params: &str) -> Result<Self, String> {
        let mut params = Params::parse(params)?;
        let mut plan = Plan::default();
        let policy = P::configure(&mut params, &mut plan);
        params.finish()?;
        Ok(Self { policy, plan })
    }

    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// Returns the plan: the numbers that the policy requests.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Decides one request from `numbers`, laid out as the plan requests: the request's numbers, then one row
    /// for each candidate.
    ///
    /// Passes if their count does not match the plan. Allocates nothing by itself.
    pub fn schedule(&self, request: Request, ids: &[WorkerId], numbers: &[f64], host: &impl Host) -> Verdict {
        match Call::new(request, ids, numbers, &self.plan) {
            Some(call) => self.policy.schedule(&call, host),
            None => Verdict::Pass,
        }
    }
}

impl<P: Policy> AsRef<P> for Configured<P> {
    fn as_ref(&self) -> &P {
        &self.policy
    }
}
