//! Sweep of the queue after a change of policies: every held request is decided once more.
//!
//! A capacity event has a wake budget, because it is of no use to most held requests. A sweep has no budget: another
//! policy may dispatch any of them, wherever it is in the queue. It decides each request once: a request that is held
//! again is not marked again. One request is decided at a time, so the sweep takes no more than one thread.

use std::cmp::Reverse;

use super::fair_queue::FairQueue;

/// State of the sweep of a queue.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Number of marked requests in the queue.
    marked: usize,
    /// `true` while a request is decided for the sweep.
    is_deciding: bool,
}

impl Sweep {
    /// Returns `true` if the next marked request may be decided.
    pub(super) fn is_due(&self) -> bool {
        self.marked > 0 && !self.is_deciding
    }

    /// Records that a marked request has left the queue.
    pub(super) fn unmark(&mut self) {
        self.marked = self.marked.saturating_sub(1);
    }
}

impl<W> FairQueue<W> {
    /// Begins a sweep: marks all held requests for one decision each. A sweep that is under way begins again.
    pub fn begin_sweep(&mut self) {
        let classes = self.classes.values_mut();
        let queues = classes.flat_map(|class| class.queues.values_mut());
        self.sweep.marked = queues.map(|ranked| ranked.queue.mark_held()).sum();
    }

    /// Begins the decision about a marked request. Call it before [`Self::serve`]. Returns `false` if it is not
    /// marked, or if another one is decided for the sweep. Each `true` needs a call of [`Self::end_sweep_decision`].
    pub fn begin_sweep_decision(&mut self, number: u64) -> bool {
        let begins = self.sweep.is_due() && self.is_marked(number);
        self.sweep.is_deciding |= begins;
        begins
    }

    /// Ends a decision of the sweep: the next marked request is due as soon as there is room.
    pub fn end_sweep_decision(&mut self) {
        self.sweep.is_deciding = false;
    }

    fn is_marked(&self, number: u64) -> bool {
        let Some((one, _)) = self.entries.get(&number) else {
            return false;
        };
        let class = self.classes.get(&Reverse(one.class));
        let ranked = class.and_then(|class| class.queues.get(&one.tenant));
        ranked.is_some_and(|ranked| ranked.queue.is_marked(number, one))
    }
}
