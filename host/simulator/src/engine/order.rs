//! Order of the waiting prompts.

use crate::spec::QueueOrder;

/// A prompt that could be computed now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    /// Place in the queue.
    pub(super) at: usize,
    /// Predicted time, in microseconds.
    pub(super) takes_us: u64,
    /// Arrival of its request.
    pub(super) arrived_us: u64,
}

/// Returns the place in the queue of the prompt that goes next. The candidates come in the order of the queue.
pub(super) fn next(
    order: QueueOrder,
    now_us: u64,
    mut waiting: impl Iterator<Item = Waiting> + Clone,
) -> Option<usize> {
    match order {
        QueueOrder::Fifo => waiting.next().map(|first| first.at),
        QueueOrder::Shortest | QueueOrder::ShortestLeft => shortest(waiting).map(|shortest| shortest.at),
        QueueOrder::SlackGuarded { limit_us } => {
            // Latest start that is in time; none where it has passed.
            let latest = |prompt: &Waiting| {
                let latest = (prompt.arrived_us + limit_us).checked_sub(prompt.takes_us)?;
                (latest >= now_us).then_some(latest)
            };
            let in_time = waiting.clone().filter(|prompt| latest(prompt).is_some());
            let Some(first) = shortest(in_time.clone()) else {
                return shortest(waiting).map(|shortest| shortest.at);
            };
            let tightest = in_time.min_by_key(|prompt| latest(prompt))?;
            let would_miss = latest(&tightest).is_some_and(|latest| now_us + first.takes_us > latest);
            Some(if would_miss { tightest.at } else { first.at })
        }
    }
}

/// Returns the earlier one of equals.
fn shortest(waiting: impl Iterator<Item = Waiting>) -> Option<Waiting> {
    waiting.min_by_key(|prompt| prompt.takes_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARDED: QueueOrder = QueueOrder::SlackGuarded { limit_us: 100 };

    /// Checks the order of prompts, given by arrival and duration.
    #[track_caller]
    fn check(order: QueueOrder, now_us: u64, prompts: &[(u64, u64)], expected: Option<usize>) {
        let waiting = prompts
            .iter()
            .enumerate()
            .map(|(at, &(arrived_us, takes_us))| Waiting {
                at,
                takes_us,
                arrived_us,
            });
        assert_eq!(next(order, now_us, waiting), expected);
    }

    #[test]
    fn the_queue_order_is_fifo_or_shortest_first() {
        let prompts = [(0, 30), (1, 10), (2, 10)];
        check(QueueOrder::Fifo, 5, &prompts, Some(0));
        check(QueueOrder::Shortest, 5, &prompts, Some(1));
        check(QueueOrder::Fifo, 5, &[], None);
        check(GUARDED, 5, &[], None);
    }

    #[test]
    fn the_shortest_goes_first_while_no_other_misses_its_time_by_it() {
        let prompts = [(0, 30), (5, 10)];
        check(GUARDED, 60, &prompts, Some(1));
        check(GUARDED, 61, &prompts, Some(0));
    }

    #[test]
    fn a_prompt_that_is_late_anyway_goes_last() {
        check(GUARDED, 91, &[(0, 10), (80, 50)], Some(1));
        check(GUARDED, 500, &[(0, 30), (1, 10)], Some(1));
    }
}
