//! Fill of the index at start: the feeds whose replay a new router waits for before it is ready.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kv_feed::{FeedCause, FeedReason, FeedState};

use crate::peer_fill::PeerFill;

/// Time for the first connection to a publisher of which an attempt has failed. A worker that is not up has no cache to
/// wait for.
const CONNECT_GRACE: Duration = Duration::from_millis(500);
/// Time for the first attempt, which takes long on a busy machine or to a distant one.
const FIRST_ATTEMPT: Duration = Duration::from_secs(5);

/// Progress of the fill at start, or its result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FillOutcome {
    /// Set once the start waits no more.
    pub is_over: bool,
    /// Feeds that were not filled, and workers that were not queried, when the time was over.
    pub unfilled: usize,
    /// Feeds whose known messages do not reach back to the start of their publisher.
    pub incomplete: usize,
    /// Feeds that took over the contents of another router.
    pub from_routers: usize,
}

/// State of the fill at start.
#[derive(Debug)]
pub(crate) struct IndexFill {
    pub(crate) progress: Arc<FillProgress>,
    pub(crate) peers: Arc<PeerFill>,
}

/// Progress of the fill, for metrics and pages.
#[derive(Debug, Default)]
pub(crate) struct FillProgress(Mutex<FillOutcome>);

impl FillProgress {
    /// Changes the progress. Returns the new one.
    pub(crate) fn update(&self, change: impl FnOnce(&mut FillOutcome)) -> FillOutcome {
        let mut outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut outcome);
        *outcome
    }

    pub(crate) fn get(&self) -> FillOutcome {
        self.update(|_| ())
    }
}

/// Returns `true` if waiting for a feed can fill the index: its replay is outstanding, or its connection is new.
pub(crate) fn is_filling(state: FeedState, reason: &FeedReason, replays: u64) -> bool {
    if matches!(state, FeedState::Live | FeedState::Broken) || reason.is_unanswered {
        return false;
    }
    match reason.cause {
        FeedCause::NotConnected if reason.is_awaited => reason.lasted < CONNECT_GRACE,
        FeedCause::NotConnected => reason.lasted < FIRST_ATTEMPT,
        // Without a replay socket, an idle publisher sends nothing.
        FeedCause::NothingReceived => replays > 0,
        FeedCause::Replaying => true,
        FeedCause::None
        | FeedCause::ConnectionLost
        | FeedCause::NotOpened
        | FeedCause::Mute
        | FeedCause::Doubtful
        | FeedCause::Refused => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filling(state: FeedState, cause: FeedCause, replays: u64) -> bool {
        let reason = FeedReason {
            cause,
            lasted: Duration::ZERO,
            next_try: None,
            is_unanswered: false,
            is_awaited: false,
        };
        is_filling(state, &reason, replays)
    }

    #[test]
    fn a_start_waits_for_outstanding_replays() {
        assert!(filling(FeedState::Rebuilding, FeedCause::Replaying, 1));
        assert!(filling(FeedState::Connecting, FeedCause::NothingReceived, 1));
        assert!(!filling(FeedState::Live, FeedCause::None, 1));
    }

    #[test]
    fn a_start_does_not_wait_for_feeds_that_cannot_be_filled() {
        let cannot = [
            (FeedState::Connecting, FeedCause::NothingReceived),
            (FeedState::Connecting, FeedCause::ConnectionLost),
            (FeedState::Connecting, FeedCause::Refused),
            (FeedState::Broken, FeedCause::NotOpened),
            (FeedState::Rebuilding, FeedCause::Mute),
            (FeedState::Rebuilding, FeedCause::Doubtful),
        ];
        for (state, cause) in cannot {
            assert!(!filling(state, cause, 0), "{cause:?}");
        }
    }

    #[test]
    fn an_unreachable_or_unanswering_publisher_is_waited_for_only_briefly() {
        let mut reason = FeedReason {
            cause: FeedCause::NotConnected,
            lasted: Duration::ZERO,
            next_try: None,
            is_unanswered: false,
            is_awaited: true,
        };
        assert!(is_filling(FeedState::Connecting, &reason, 1));
        reason.lasted = CONNECT_GRACE;
        assert!(!is_filling(FeedState::Connecting, &reason, 1));
        reason.is_awaited = false;
        assert!(
            is_filling(FeedState::Connecting, &reason, 1),
            "no attempt has failed"
        );
        reason.lasted = FIRST_ATTEMPT;
        assert!(!is_filling(FeedState::Connecting, &reason, 1));
        (reason.cause, reason.is_unanswered) = (FeedCause::NothingReceived, true);
        assert!(!is_filling(FeedState::Connecting, &reason, 1));
    }
}
