//! What is configured of admission: for a pool, and for a route.

use std::time::Duration;

use http::HeaderName;

/// What a pool lets in, and whom first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AdmissionSpec {
    /// Most requests under way.
    pub requests: BudgetSpec,
    /// Most prompt and expected output tokens under way.
    pub tokens: BudgetSpec,
    /// Output tokens expected of a request, or fewer where it says how many it wants at most.
    pub expected_output: u64,
    /// What first tokens should come within, where the route says nothing.
    pub ttft_target: Option<Duration>,
    /// The time there should be between tokens, where the route says nothing; it also bounds requests that are `Auto`.
    pub tbt_target: Option<Duration>,
    /// A request is refused at once where more than this many times its route's target is predicted; none: never.
    pub early_rejection: Option<f64>,
    /// The header that names a request's class.
    pub priority_header: Option<String>,
    /// Whether `priority` of the body does, too.
    pub priority_in_body: bool,
    /// The header that names a request's tenant, where it has no key that does.
    pub tenant_header: Option<String>,
    /// The header that tells how long a client waits for the beginning of an answer.
    pub timeout_header: Option<String>,
}

/// How large a budget is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BudgetSpec {
    /// Without limit.
    #[default]
    Off,
    /// So much.
    Fixed(u64),
    /// The sum of what the workers in service take.
    Auto {
        /// What one takes where nothing more is known of it; none: without limit.
        per_worker: Option<u64>,
    },
}

/// What a route asks for its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Objectives {
    /// Their class; none: that of the client's key, else 0.
    pub priority: Option<i32>,
    /// What first tokens should come within, from the request's arrival.
    pub ttft_target: Option<Duration>,
    /// The time there should be between tokens.
    pub tbt_target: Option<Duration>,
    /// How long the beginning of an answer is waited for.
    pub start_timeout: Option<Duration>,
}

/// The same, ready for use.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) spec: AdmissionSpec,
    pub(super) priority_header: Option<HeaderName>,
    pub(super) tenant_header: Option<HeaderName>,
    pub(super) timeout_header: Option<HeaderName>,
}

impl Admission {
    /// A name that no header can have is not looked for.
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
