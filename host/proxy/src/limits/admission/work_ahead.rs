//! Work of the queue that goes before a request, for its policy.

use routing::{RequestRank, WorkerId};

use super::admission_request::{AdmissionInput, AdmissionRequest};
use super::controller::AdmissionController;

impl AdmissionController {
    /// Returns the waiting requests per worker that go before this one: see [`routing::FairQueue::ahead`].
    /// `charged` is the charge that its tenant has for it.
    pub(crate) fn ahead(
        &self,
        input: &AdmissionInput<'_>,
        charged: Option<f64>,
        workers: &[WorkerId],
        most: &[u32],
    ) -> Vec<u32> {
        let request = AdmissionRequest::of(input);
        let rank = RequestRank {
            class: request.class,
            tenant: &request.tenant,
            charged,
        };
        self.queue().waiting.ahead(&rank, workers, most)
    }
}
