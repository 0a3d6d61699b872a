//! Changes of a commit of policies, and their log lines.

use std::sync::Arc;
use std::time::Duration;

use observability::error_chain;
use tracing::{error, info, warn};

use super::PolicyProblem;

/// Time of a decision over 256 candidates above which a policy delays the requests of its thread.
const SLOW: Duration = Duration::from_micros(100);

/// Policy with a new active version.
#[derive(Debug)]
pub struct SwappedPolicy {
    /// Name of the policy.
    pub policy: String,
    pub(super) version: Arc<str>,
    pub(super) decided_256_in: Duration,
}

/// Changes of a commit.
#[derive(Debug, Default)]
pub struct PolicyCommit {
    /// Policies with a new active version.
    pub swapped: Vec<SwappedPolicy>,
    /// Policies whose newest bytes were refused, with the reason, each reported once.
    pub failed: Vec<(String, Arc<PolicyProblem>)>,
}

impl PolicyCommit {
    /// Logs the new versions and the refused ones.
    pub fn log(&self) {
        for SwappedPolicy {
            policy,
            version,
            decided_256_in,
        } in &self.swapped
        {
            info!(policy, version = &**version, "policy version activated");
            if *decided_256_in > SLOW {
                warn!(
                    policy,
                    version = &**version,
                    took = ?decided_256_in,
                    "a decision over 256 candidates took this policy longer than {SLOW:?} when it was loaded: it delays every \
                     request on its thread"
                );
            }
        }
        for (policy, problem) in &self.failed {
            error!(
                policy,
                error = error_chain(&**problem),
                "policy refused; its last good version, if any, stays"
            );
        }
    }
}
