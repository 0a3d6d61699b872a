//! Network link of a worker: simultaneous transfers have equal shares of it.
//!
//! Exact: between two changes every transfer advances at the same pace, so one number is the progress of all of them
//! (processor sharing by virtual time; Parekh and Gallager 1993). A transfer's size is the time it would take alone.

/// Link and its transfers.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Time at which the transfers' progress was settled last, in microseconds.
    clock: f64,
    /// Progress of a transfer that was there all along, in microseconds alone.
    progress: f64,
    /// Transfers in the order of their start.
    flows: Vec<Flow>,
    /// Ended, but not reported yet.
    ended: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    id: usize,
    /// Ends when `progress` is there.
    until: f64,
}

impl Link {
    /// Begins a transfer that takes `alone_us` if it has the link for itself. Ids are the caller's.
    pub(super) fn start(&mut self, now_us: u64, id: usize, alone_us: f64) {
        self.settle(now_us as f64);
        if self.flows.is_empty() {
            self.progress = 0.0;
        }
        let until = self.progress + alone_us;
        self.flows.push(Flow { id, until });
    }

    /// Breaks a transfer off.
    pub(super) fn cancel(&mut self, now_us: u64, id: usize) {
        self.settle(now_us as f64);
        self.flows.retain(|flow| flow.id != id);
        self.ended.retain(|ended| *ended != id);
    }

    /// Returns the first whole microsecond at which a transfer will have ended.
    pub(super) fn next_at(&self) -> Option<u64> {
        if !self.ended.is_empty() {
            return Some(self.clock.ceil() as u64);
        }
        self.next_end().map(|at| at.ceil() as u64)
    }

    /// Gives the transfers that have ended, in the order of their ends.
    pub(super) fn advance(&mut self, now_us: u64, ended: &mut Vec<usize>) {
        self.settle(now_us as f64);
        ended.append(&mut self.ended);
    }

    fn next_end(&self) -> Option<f64> {
        let left = |flow: &Flow| (flow.until - self.progress).max(0.0);
        let least = self.flows.iter().map(left).min_by(f64::total_cmp)?;
        Some(self.clock + least * self.flows.len() as f64)
    }

    /// Lets time pass, one end after the other.
    fn settle(&mut self, now: f64) {
        while let Some(end) = self.next_end().filter(|end| *end <= now) {
            let least = self.flows.iter().map(|flow| flow.until).min_by(f64::total_cmp);
            self.progress = least.unwrap_or(self.progress).max(self.progress);
            self.clock = end;
            let progress = self.progress;
            let over = self.flows.iter().filter(|flow| flow.until <= progress);
            self.ended.extend(over.map(|flow| flow.id));
            self.flows.retain(|flow| flow.until > progress);
        }
        if !self.flows.is_empty() {
            self.progress += (now - self.clock).max(0.0) / self.flows.len() as f64;
        }
        self.clock = self.clock.max(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs the link to its end.
    fn ends(link: &mut Link) -> Vec<(u64, usize)> {
        let mut all = Vec::new();
        while let Some(at) = link.next_at() {
            let mut ended = Vec::new();
            link.advance(at, &mut ended);
            assert!(!ended.is_empty(), "it reported it");
            all.extend(ended.into_iter().map(|id| (at, id)));
        }
        all
    }

    #[test]
    fn alone_a_transfer_takes_its_time() {
        let mut link = Link::default();
        link.start(10, 1, 100.0);
        assert_eq!(ends(&mut link), [(110, 1)]);
        assert_eq!(link.next_at(), None);
    }

    #[test]
    fn two_take_twice_as_long_while_both_are_there() {
        let mut link = Link::default();
        link.start(0, 1, 100.0);
        link.start(50, 2, 100.0);
        // 50 are left of the first, at half pace until 150; then 50 of the second at full pace.
        assert_eq!(ends(&mut link), [(150, 1), (200, 2)]);
    }

    #[test]
    fn the_end_of_a_broken_off_transfer_gives_its_share_back() {
        let mut link = Link::default();
        link.start(0, 1, 100.0);
        link.start(0, 2, 100.0);
        link.cancel(100, 1);
        assert_eq!(ends(&mut link), [(150, 2)]);
    }

    #[test]
    fn an_end_between_two_looks_is_not_lost() {
        let mut link = Link::default();
        link.start(0, 1, 10.0);
        link.start(50, 2, 10.0);
        assert_eq!(link.next_at(), Some(50));
        assert_eq!(ends(&mut link), [(50, 1), (60, 2)]);
    }

    proptest! {
        #[test]
        fn a_busy_link_is_never_idle(starts in prop::collection::vec((0_u64..1_000, 1_u32..500), 1..20)) {
            let mut starts = starts;
            starts.sort_unstable();
            let mut link = Link::default();
            let (mut free_at, mut ended) = (0, Vec::new());
            for (id, (at, size)) in starts.iter().enumerate() {
                link.start(*at, id, f64::from(*size));
                free_at = free_at.max(*at) + u64::from(*size);
                link.advance(*at, &mut ended);
            }
            let last = ends(&mut link).last().map(|(at, _)| *at);
            // Work is conserved: the last ends when a queue of the same transfers would be empty.
            prop_assert!(last.is_none_or(|last| last.abs_diff(free_at) <= 1));
        }
    }
}
