//! Work of the queue that goes before a request, for its policy.

use std::sync::atomic::Ordering;

use routing::{RequestRank, WorkerId};

use super::admission_request::{AdmissionInput, AdmissionRequest};
use super::controller::AdmissionController;

impl AdmissionController {
    /// Returns the waiting requests per worker that go before this one: see [`routing::FairQueue::ahead`].
    /// `has_waited` is set for a request that was in the queue.
    pub(crate) fn ahead(
        &self,
        input: &AdmissionInput<'_>,
        has_waited: bool,
        workers: &[WorkerId],
        most: &[u32],
    ) -> Vec<u32> {
        let request = AdmissionRequest::of(input);
        // A decision needs a permit, which charges the tenant, unless it is the first and there is no budget.
        let is_charged = has_waited || self.has_budget.load(Ordering::Relaxed);
        let rank = RequestRank {
            class: request.class,
            tenant: &request.tenant,
            charged: is_charged.then(|| request.share()),
        };
        self.queue().waiting.ahead(&rank, workers, most)
    }
}
