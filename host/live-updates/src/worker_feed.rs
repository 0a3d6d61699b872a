//! Feed of a worker, whose ranks may have a feed each.

use std::collections::HashMap;
use std::time::Duration;

use kv_feed::{FeedState, FeedStatus};
use routing::WorkerId;

/// State of a worker's feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerFeed {
    /// State.
    pub(crate) state: FeedState,
    /// Time from an event to its delivery.
    pub(crate) lag: Option<Duration>,
    /// Time since the latest message.
    pub(crate) silent_for: Option<Duration>,
}

impl WorkerFeed {
    /// Returns the worse one of the feeds of two ranks: the cache of a worker is known only if all of them are live.
    fn worse(self, other: Self) -> Self {
        let order = |feed: &Self| (badness(feed.state), feed.lag, feed.silent_for);
        if order(&other) > order(&self) { other } else { self }
    }
}

impl From<FeedStatus> for WorkerFeed {
    fn from(status: FeedStatus) -> Self {
        Self {
            state: status.state,
            lag: status.lag,
            silent_for: status.silent_for,
        }
    }
}

/// Returns the worst feed of each worker.
pub(crate) fn of_workers(
    feeds: impl IntoIterator<Item = (WorkerId, WorkerFeed)>,
) -> HashMap<WorkerId, WorkerFeed> {
    let mut workers: HashMap<WorkerId, WorkerFeed> = HashMap::new();
    for (worker, feed) in feeds {
        let worst = workers.entry(worker).or_insert(feed);
        *worst = worst.worse(feed);
    }
    workers
}

fn badness(state: FeedState) -> u8 {
    match state {
        FeedState::Live => 0,
        FeedState::Rebuilding => 1,
        FeedState::Connecting => 2,
        FeedState::Broken => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn feed(state: FeedState, lag: u64) -> WorkerFeed {
        WorkerFeed {
            state,
            lag: Some(Duration::from_millis(lag)),
            silent_for: None,
        }
    }

    #[track_caller]
    fn check(ranks: &[WorkerFeed], expected: WorkerFeed) {
        let worker = WorkerId(7);
        let workers = of_workers(ranks.iter().map(|feed| (worker, *feed)));
        assert_eq!(workers[&worker], expected);
    }

    #[test]
    fn a_worker_has_the_worst_feed_of_its_ranks() {
        use FeedState::{Broken, Connecting, Live, Rebuilding};
        check(&[feed(Live, 1), feed(Connecting, 0)], feed(Connecting, 0));
        check(&[feed(Connecting, 0), feed(Live, 1)], feed(Connecting, 0));
        check(
            &[feed(Rebuilding, 9), feed(Broken, 2), feed(Live, 1)],
            feed(Broken, 2),
        );
        check(&[feed(Live, 1), feed(Live, 5), feed(Live, 3)], feed(Live, 5));
    }
}
