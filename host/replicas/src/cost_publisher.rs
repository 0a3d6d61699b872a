//! Publisher of samples of the workers' costs.

use routing::CostModel;

use crate::cost_message::{CostMessage, MOST_COST_SAMPLES, WorkerSamples};
use crate::id::{RouterId, WorkerKey};

/// Samples of a worker in a message, at most.
const MOST_OF_WORKER: usize = 32;

/// Messages with this router's newest samples.
#[derive(Debug)]
pub struct CostPublisher {
    router: RouterId,
    sequence: u64,
    /// Place of the worker with which the next message begins.
    next: usize,
}

impl CostPublisher {
    /// Returns the publisher of a router.
    #[must_use]
    pub fn new(router: RouterId) -> Self {
        Self {
            router,
            sequence: 0,
            next: 0,
        }
    }

    /// Takes the newest samples of the workers into a message; `None` if there are none. Workers without room are first
    /// in the next message.
    pub fn message<'c>(
        &mut self,
        workers: impl ExactSizeIterator<Item = (WorkerKey, &'c CostModel)> + Clone,
    ) -> Option<CostMessage> {
        let (count, begin) = (workers.len(), self.next);
        let (mut taken, mut samples_taken) = (Vec::new(), 0);
        let in_turn = workers.clone().skip(begin).chain(workers.take(begin));
        self.next = 0;
        for (at, (worker, cost)) in in_turn.enumerate() {
            if samples_taken + MOST_OF_WORKER > MOST_COST_SAMPLES {
                self.next = (begin + at) % count.max(1);
                break;
            }
            let mut samples = Vec::new();
            cost.take_samples(|sample| samples.push(sample));
            samples_taken += samples.len();
            if !samples.is_empty() {
                taken.push(WorkerSamples { worker, samples });
            }
        }
        if taken.is_empty() {
            return None;
        }
        self.sequence += 1;
        Some(CostMessage {
            router: self.router,
            sequence: self.sequence,
            workers: taken,
        })
    }
}
