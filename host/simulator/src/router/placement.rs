//! Answer of a router about a request.

use routing::WorkerId;

use crate::engine::Fetch;
use crate::outcome::RefusalReason;

/// Answer about a request. Workers are named by their place in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Placement {
    /// The request is sent.
    Dispatch {
        /// The worker that answers.
        worker: usize,
        /// The worker that computes the prompt for it, where another does.
        prefill: Option<usize>,
        /// The policy's figure of merit for where the request begins; NaN when it has none.
        score: f64,
        /// Tokens of the prompt that the worker where it begins is known to hold. `None` if the index was not queried,
        /// or nothing is known.
        matched: Option<u32>,
        /// Prefix that the worker fetches first, by the cluster's rule and by the records of this router.
        fetch: Option<Fetch>,
    },
    /// The request is held.
    Hold {
        /// Ascending order among those held.
        order: f64,
        /// Maximum time until the request is placed again, in microseconds.
        reevaluate_after_us: u64,
        /// The worker it waits for in particular.
        waits_for: Option<WorkerId>,
    },
    /// No worker takes its computed prompt over: it is placed again, as a whole.
    Forget,
    /// The request is refused.
    Reject {
        /// HTTP status.
        status: u16,
        /// Value of `Retry-After`, in milliseconds; 0 for none.
        retry_after_ms: u32,
        /// Reason of the refusal.
        why: RefusalReason,
    },
}

pub(super) fn refused(status: u16, why: RefusalReason) -> Placement {
    Placement::Reject {
        status,
        retry_after_ms: 0,
        why,
    }
}
