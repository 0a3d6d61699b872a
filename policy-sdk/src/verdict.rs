//! Verdict: the answer of a policy.

use crate::call::LeastCost;

/// Answer of a policy to one call. The router checks it. An invalid answer is a fault, and the fallback
/// decides.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Routes the request or leg to one candidate. In phase mixed this is the whole request, to a mixed or a
    /// decode worker.
    Route {
        /// Row of the candidate.
        row: usize,
        /// Score by the policy's own measure: any unit, higher is better; NaN if there is none.
        score: f64,
    },
    /// Routes the request to a pair. Valid only in phase mixed of a disaggregated pool, for a policy that has
    /// requested [`Plan::roles`](crate::Plan::roles).
    Pair {
        /// Row of the decode worker, which answers the client.
        row: usize,
        /// Row of the prefill worker.
        prefill: usize,
        /// Score, as in `Route`.
        score: f64,
    },
    /// Holds the request in the router's queue and calls the policy again later.
    Queue {
        /// Sort key: held requests of a pool are re-evaluated in ascending order; equal keys go by arrival; not NaN.
        order: f64,
        /// Maximum time until the next call, 1 to 10,000 ms; freed capacity may trigger it earlier.
        ask_again_ms: u32,
    },
    /// Rejects the request with an error response.
    Reject {
        /// HTTP status, 400 to 599.
        status: u16,
        /// `Retry-After` in milliseconds, rounded up to seconds; 0 sends none.
        retry_after_ms: u32,
        /// Reason for the client, at most 256 bytes.
        reason: String,
    },
    /// Leaves the decision to the router's fallback (least loaded).
    Pass,
}

impl Verdict {
    /// Routes to the candidate found by [`Call::least`](crate::Call::least), with the negated cost as score. Passes
    /// if no candidate has a cost.
    #[must_use]
    pub fn route_to(least: Option<LeastCost>) -> Self {
        least.map_or(Self::Pass, |LeastCost { row, cost }| Self::Route {
            row,
            score: -cost,
        })
    }
}
