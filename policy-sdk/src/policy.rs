//! The one trait a policy implements, and a policy made ready for calls.

use crate::call::{Call, Request, WorkerId};
use crate::host::Host;
use crate::params::{Parameter, Params};
use crate::plan::Plan;
use crate::verdict::Verdict;

/// A scheduling policy. Instances are many and short-lived, one a thread of the router or so: what must last
/// lives in the host's state ([`Host::add_state`], [`Host::set_state`]).
pub trait Policy: Sized + Send + Sync + 'static {
    /// What it calls itself.
    const NAME: &'static str;
    /// Its version; `env!("CARGO_PKG_VERSION")` is the crate's.
    const VERSION: &'static str;

    /// Reads the parameters and asks for the numbers. Mistakes in the parameters are collected in `params` and
    /// reported together, so there is nothing to return but the policy.
    fn configure(params: &mut Params, plan: &mut Plan) -> Self;

    /// Decides one request, in microseconds. Must rely on nothing but its arguments.
    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict;
}

/// The parameters of a policy, as the router is told of them.
#[must_use]
pub fn parameters<P: Policy>() -> Vec<Parameter> {
    Params::describe(|params| {
        P::configure(params, &mut Plan::default());
    })
}

/// A policy together with the numbers it asked for.
#[derive(Debug, Clone)]
pub struct Configured<P> {
    policy: P,
    plan: Plan,
}

impl<P: Policy> Configured<P> {
    /// Configures a policy from the JSON object of its parameters, as the router does once for each instance.
    ///
    /// # Errors
    /// Every mistake in the parameters, one a line, and the parameters there are.
    pub fn new(params: &str) -> Result<Self, String> {
        let mut params = Params::parse(params)?;
        let mut plan = Plan::default();
        let policy = P::configure(&mut params, &mut plan);
        params.finish()?;
        Ok(Self { policy, plan })
    }

    /// The policy itself.
    #[must_use]
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// The numbers it wants laid out.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Decides one request from `numbers`, laid out as the plan asks: the request's numbers, then one row a
    /// candidate. Passes where their count is not the plan's. Allocates nothing by itself.
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
