//! What a policy answers.

use crate::call::Least;

/// A policy's answer to one call. The router checks it; an answer that makes no sense is a fault, and the
/// fallback decides.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Send what is being placed to a candidate: in phase mixed the whole request, to a mixed or a decode worker.
    Route {
        /// Its row.
        row: usize,
        /// The policy's own figure of merit, higher is better, any unit; NaN where there is none.
        score: f64,
    },
    /// Send the request to two candidates. Only in phase mixed of a disaggregated pool, by a policy that has asked
    /// for [`Plan::roles`](crate::Plan::roles).
    Pair {
        /// Row of the decode worker, which answers the client.
        row: usize,
        /// Row of the prefill worker.
        prefill: usize,
        /// As that of a route.
        score: f64,
    },
    /// Hold the request in the router's queue and ask again.
    Queue {
        /// Held requests of a pool are asked again in ascending order of this; not NaN.
        order: f64,
        /// At the latest after so many milliseconds, 1 to 10,000; earlier when capacity frees.
        ask_again_ms: u32,
    },
    /// Answer the client with an error.
    Reject {
        /// HTTP status, 400 to 599.
        status: u16,
        /// `Retry-After` in milliseconds, rounded up to seconds; 0 sends none.
        retry_after_ms: u32,
        /// Shown to the client, at most 256 bytes.
        reason: String,
    },
    /// No opinion: the router's fallback (least loaded) decides.
    Pass,
}

impl Verdict {
    /// Routes to the candidate that [`Least::of`] found, its cost negated as the score; passes where no
    /// candidate had a cost.
    #[must_use]
    pub fn route_to(least: Option<Least>) -> Self {
        least.map_or(Self::Pass, |Least { row, cost }| Self::Route {
            row,
            score: -cost,
        })
    }
}
