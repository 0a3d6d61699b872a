//! Admission settings of pools and routes.

use std::time::Duration;

use http::HeaderName;

/// Admission settings of a pool: budgets, targets and priorities.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AdmissionSpec {
    /// Maximum of requests in progress.
    pub requests: BudgetSpec,
    /// Maximum of prompt tokens and expected output tokens in progress.
    pub tokens: BudgetSpec,
    /// Expected output tokens of a request. A lower maximum in the request itself takes precedence.
    pub expected_output: u64,
    /// Target time to the first token, unless the route sets one.
    pub ttft_target: Option<Duration>,
    /// Target time between tokens, unless the route sets one. It also limits the budget of requests if that is `Auto`.
    pub tbt_target: Option<Duration>,
    /// Early rejection: a request is refused if its prediction exceeds this multiple of its target. `None`
    /// disables it.
    pub early_rejection: Option<f64>,
    /// Header with a request's class.
    pub priority_header: Option<String>,
    /// Set if `priority` of the body is read as the class too.
    pub priority_in_body: bool,
    /// Header with a request's tenant, for requests whose key has none.
    pub tenant_header: Option<String>,
    /// Header with the time that a client waits for the beginning of a response.
    pub timeout_header: Option<String>,
}

/// Size of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BudgetSpec {
    /// Unlimited.
    #[default]
    Off,
    /// Fixed limit.
    Fixed(u64),
    /// Sum of the capacities of the workers in service.
    Auto {
        /// Capacity of a worker about which nothing more is known. `None`: unlimited.
        per_worker: Option<u64>,
    },
}

impl BudgetSpec {
    /// Returns the capacity of a worker about which nothing more is known. `None`: unlimited.
    pub(super) fn per_worker(self) -> Option<u64> {
        match self {
            Self::Auto { per_worker } => per_worker,
            Self::Off | Self::Fixed(_) => None,
        }
    }
}

/// Objectives of a route for its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Objectives {
    /// Class of its requests. `None`: that of the client's key, else 0.
    pub priority: Option<i32>,
    /// Target time to the first token, from the request's arrival.
    pub ttft_target: Option<Duration>,
    /// Target time between tokens.
    pub tbt_target: Option<Duration>,
    /// Time limit for the beginning of the response.
    pub start_timeout: Option<Duration>,
}

/// Admission settings with parsed header names.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) spec: AdmissionSpec,
    pub(super) priority_header: Option<HeaderName>,
    pub(super) tenant_header: Option<HeaderName>,
    pub(super) timeout_header: Option<HeaderName>,
}

impl Admission {
    /// Parses the header names. An invalid name is ignored.
    pub(crate) fn new(spec: AdmissionSpec) -> Self {
        let header = |name: &Option<String>| HeaderName::try_from(name.as_deref()?).ok();
        Self {
            priority_header: header(&spec.priority_header),
            tenant_header: header(&spec.tenant_header),
            timeout_header: header(&spec.timeout_header),
            spec,
        }
    }
}
