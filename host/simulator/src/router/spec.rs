//! Specification of a simulated router. The defaults are the server's, except that all events arrive at once.

use std::sync::Arc;

use routing::{Phase, Policy, PolicyVersions, RequestFeature};

use super::sharing_spec::SharingSpec;
use crate::profile::Profile;

/// Numbers of a request that no trace has: they are unknown in a simulation.
pub const UNKNOWN_NUMBERS: [RequestFeature; 3] = [
    RequestFeature::MaxTokens,
    RequestFeature::Priority,
    RequestFeature::TtftTargetMs,
];

/// Cache knowledge of a router.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Knowledge {
    /// No knowledge: no engine publishes events, and none is assumed to keep anything. Every match is unknown.
    None,
    /// Events that the engines publish, and for [`RouterSpec::expect_us`] the prompts just sent there.
    Events {
        /// Delay from the change of a cache until the router records it, in microseconds.
        lag_us: u64,
        /// Share of the events that are lost, 0 to 1.
        loss: f64,
    },
    /// Prompts sent there lately, up to the capacity of the device: no engine publishes anything.
    Assumed {
        /// Time for which a worker is expected to hold blocks that no request uses again, in microseconds.
        lifetime_us: u64,
    },
}

/// Source of the columns `cost.*`.
#[derive(Debug, Clone)]
pub enum CostSource {
    /// The server's own models, which learn from the requests of the run; NaN until enough of them were measured.
    Learned,
    /// Costs of this profile. `cost.prefill-ms` is the time of the prompt there, with the blocks that the cluster's
    /// rule has it fetch. `cost.token-ms` is such that times `load.prefill-tokens` it gives the time until the worker
    /// is free.
    Exact(Profile),
    /// Costs of the cluster's own profile, each request's costs times a factor of its own: e^N(0, sigma).
    Wrong {
        /// Standard deviation of the factor's logarithm.
        sigma: f64,
    },
}

/// Limits of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSpec {
    /// Most that are held at a time; with 0 none is.
    pub limit: usize,
    /// Longest that one is held in all, in microseconds.
    pub timeout_us: u64,
}

/// A router but for its policies.
#[derive(Debug, Clone)]
pub struct RouterSpec {
    /// Cache knowledge.
    pub knowledge: Knowledge,
    /// Time for which a worker whose events arrive is expected to hold the prompts just sent to it, in microseconds; 0
    /// for not at all. The `expect-for` of `[index]`.
    pub expect_us: u64,
    /// Source of the predictions.
    pub costs: CostSource,
    /// Limits of the queue.
    pub queue: QueueSpec,
    /// Set if a decode worker may do the whole of a request.
    pub decode_alone: bool,
    /// Ejection time of a worker after a failure, in microseconds; doubled with every failure in a row.
    pub rest_us: u64,
    /// Seeds the losses, the errors of costs, and, with the request's number, the policies. Below 2^32: two that differ
    /// only above give the policies the same numbers.
    pub seed: u64,
    /// Exchange of loads between several routers; none shares nothing.
    pub sharing: Option<SharingSpec>,
    /// Routers that die.
    pub deaths: Vec<RouterDeath>,
    /// Router of each request.
    pub balance: RouterBalance,
}

/// Choice of the router that receives a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RouterBalance {
    /// Routers in turn.
    #[default]
    Turn,
    /// The same router for all requests of a session; in turn without one.
    Session,
}

/// Death of a router. Its requests end with it, and later ones go to the next router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterDeath {
    /// The router.
    pub router: usize,
    /// Time in microseconds of the run.
    pub at_us: u64,
}

impl Default for RouterSpec {
    fn default() -> Self {
        Self {
            knowledge: Knowledge::Events { lag_us: 0, loss: 0.0 },
            expect_us: 2_000_000,
            costs: CostSource::Learned,
            queue: QueueSpec {
                limit: 1_000,
                timeout_us: 30_000_000,
            },
            decode_alone: true,
            rest_us: 1_000_000,
            seed: 0,
            sharing: None,
            deaths: Vec::new(),
            balance: RouterBalance::Turn,
        }
    }
}

/// Policies of one router.
#[derive(Debug, Clone)]
pub enum Policies {
    /// Single policy for everything. If a request is to be split and the policy does not place both legs in one call,
    /// it places first the one, then the other.
    One(Arc<dyn Policy>),
    /// Separate policies for each leg. The first decides where a request begins, and so about whole ones as well.
    ByPhase {
        /// Policy of the prefill leg.
        prefill: Arc<dyn Policy>,
        /// Policy of the decode leg.
        decode: Arc<dyn Policy>,
    },
}

impl Policies {
    /// Returns the policy that decides where a request begins.
    pub(super) fn first(&self) -> &Arc<dyn Policy> {
        match self {
            Self::One(policy) | Self::ByPhase { prefill: policy, .. } => policy,
        }
    }

    /// Returns every policy once.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Policy>> {
        let second = match self {
            Self::One(_) => None,
            Self::ByPhase { decode, .. } => Some(decode),
        };
        std::iter::once(self.first()).chain(second)
    }
}

/// The policies of one router, each with a circuit of its own.
#[derive(Debug)]
pub(super) struct PolicyChains {
    first: Arc<PolicyVersions>,
    /// Policy of the decode phase, where each phase has its own.
    pub(super) decode: Option<Arc<PolicyVersions>>,
}

impl PolicyChains {
    pub(super) fn of(policies: Policies) -> Self {
        match policies {
            Policies::One(policy) => Self {
                first: PolicyVersions::only(policy),
                decode: None,
            },
            Policies::ByPhase { prefill, decode } => Self {
                first: PolicyVersions::only(prefill),
                decode: Some(PolicyVersions::only(decode)),
            },
        }
    }

    /// Returns the policy of a phase. That of the prefill leg decides whole requests as well.
    pub(super) fn of_phase(&self, phase: Phase) -> &PolicyVersions {
        let decode = self.decode.as_ref().filter(|_| phase == Phase::Decode);
        decode.unwrap_or(&self.first)
    }
}
