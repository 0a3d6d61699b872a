//! Backlog of a worker: the predicted time until the prompts that were sent to it are computed.

use std::collections::VecDeque;

/// Backlog of a worker that computes one prompt after the other.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Requests and the microseconds each was predicted to take, in the order of their dispatch.
    waiting: VecDeque<(usize, u64)>,
    sum_us: u64,
    /// Start of the first of them.
    since_us: u64,
}

impl Backlog {
    /// Adds a prompt.
    pub(super) fn add(&mut self, request: usize, predicted_us: u64, now_us: u64) {
        if self.waiting.is_empty() {
            self.since_us = now_us;
        }
        self.waiting.push_back((request, predicted_us));
        self.sum_us += predicted_us;
    }

    /// Removes a prompt that is computed, or gone.
    pub(super) fn remove(&mut self, request: usize, now_us: u64) {
        let Some(at) = self.waiting.iter().position(|(waits, _)| *waits == request) else {
            return;
        };
        if let Some((_, predicted_us)) = self.waiting.remove(at) {
            self.sum_us -= predicted_us;
        }
        if at == 0 {
            self.since_us = now_us;
        }
    }

    /// Returns the microseconds until it is free. What the first prompt takes longer than predicted does not shorten
    /// the others.
    pub(super) fn left_us(&self, now_us: u64) -> u64 {
        let begun = self.waiting.front().map_or(0, |(_, predicted_us)| {
            now_us.saturating_sub(self.since_us).min(*predicted_us)
        });
        self.sum_us - begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_shrinks_with_time_and_completed_prompts() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.left_us(5), 0);
        backlog.add(1, 100, 1_000);
        backlog.add(2, 50, 1_010);
        assert_eq!(backlog.left_us(1_010), 140);
        assert_eq!(
            backlog.left_us(1_200),
            50,
            "the first is late, the second not begun"
        );
        backlog.remove(1, 1_200);
        assert_eq!(backlog.left_us(1_220), 30);
        backlog.remove(2, 1_250);
        backlog.remove(2, 1_250);
        assert_eq!(backlog.left_us(1_300), 0);
    }

    #[test]
    fn one_that_leaves_from_the_middle_takes_its_own_time_along() {
        let mut backlog = Backlog::default();
        for request in 0..3 {
            backlog.add(request, 100, 0);
        }
        backlog.remove(1, 40);
        assert_eq!(backlog.left_us(40), 160);
    }
}
