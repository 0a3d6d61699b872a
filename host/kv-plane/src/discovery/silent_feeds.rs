//! Silent feeds: checks whether their engines are idle. Pure: states, counters and the time come in.
//!
//! Feeds whose publisher answers replays check themselves. The other engines are queried for their computed prompt
//! tokens. An engine that computed several blocks during the silence and published nothing is suspect.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use inference_api::CacheUse;
use kv_feed::{FeedState, FeedStatus};
use routing::{DpRank, WorkerId};

/// Silence below which a feed is not suspect.
const QUIET: Duration = Duration::from_secs(5);
/// First pause between two queries, doubled each time up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// Assumed block size of an engine that does not report one.
const USUAL_BLOCK: u32 = 16;
/// Number of blocks that make an engine suspect, beside one for each request: the last tokens of a prompt fill no
/// block, and nothing is published of them.
const SUSPECT_BLOCKS: f64 = 8.0;

/// Counters of engines with silent feeds.
#[derive(Debug, Default)]
pub(super) struct SilentFeeds(HashMap<(WorkerId, DpRank), SilentFeed>);

#[derive(Debug)]
struct SilentFeed {
    due: Instant,
    pause: Duration,
    /// First counters, with their time.
    before: Option<(CacheUse, Instant)>,
}

impl SilentFeeds {
    /// Returns the workers to query now.
    pub(super) fn due(&mut self, feeds: &[FeedStatus], now: Instant) -> Vec<WorkerId> {
        let silent = |feed: &&FeedStatus| {
            feed.state == FeedState::Live
                && !feed.answers
                && feed.silent_for.is_some_and(|time| time >= QUIET)
        };
        let mut due = Vec::new();
        let mut kept = HashMap::new();
        for feed in feeds.iter().filter(silent) {
            let place = (feed.worker, feed.rank);
            let last_message = now.checked_sub(feed.silent_for.unwrap_or_default());
            let mut silence = self.0.remove(&place).unwrap_or(SilentFeed {
                due: now,
                pause: FIRST_PAUSE,
                before: None,
            });
            // A counter from before the last event is no evidence about the silence.
            if silence.before.is_some_and(|(_, at)| Some(at) < last_message) {
                silence.before = None;
            }
            if now >= silence.due {
                silence.due = now + silence.pause;
                silence.pause = (silence.pause * 2).min(LAST_PAUSE);
                if !due.contains(&feed.worker) {
                    due.push(feed.worker);
                }
            }
            kept.insert(place, silence);
        }
        self.0 = kept;
        due
    }

    /// Records the counters of an engine. Returns true if one of its feeds should have delivered events.
    pub(super) fn learn(&mut self, worker: WorkerId, ranks: &BTreeMap<u16, CacheUse>, now: Instant) -> bool {
        let mut suspect = false;
        for (rank, used) in ranks {
            let Some(silence) = self.0.get_mut(&(worker, DpRank(*rank))) else {
                continue;
            };
            let (before, _) = *silence.before.get_or_insert((*used, now));
            let block = f64::from(used.block_tokens.unwrap_or(USUAL_BLOCK));
            let requests = (used.requests - before.requests).max(0.0);
            suspect |= used.computed_tokens - before.computed_tokens > (SUSPECT_BLOCKS + requests) * block;
        }
        suspect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: WorkerId = WorkerId(3);

    struct Scenario {
        silences: SilentFeeds,
        began: Instant,
        now: Instant,
    }

    fn feed(silent_for: u64, answers: bool) -> FeedStatus {
        FeedStatus {
            worker: WORKER,
            name: "w".into(),
            endpoint: String::new(),
            rank: DpRank(1),
            state: FeedState::Live,
            complete: true,
            can_replay: true,
            known_from: Some(0),
            batches: 1,
            events: 1,
            stored: 1,
            removed: 0,
            cleared: 0,
            gaps: 0,
            replays: 0,
            restarts: 0,
            resets: 0,
            silences: 0,
            rejected: kv_feed::Rejected::default(),
            rejected_messages: 0,
            refused: kv_feed::Rejected::default(),
            last_seq: Some(0),
            answers,
            silent: false,
            silent_for: Some(Duration::from_secs(silent_for)),
            lag: None,
            reason: kv_feed::FeedReason {
                cause: kv_feed::FeedCause::None,
                lasted: Duration::ZERO,
                next_try: None,
                is_unanswered: false,
                is_awaited: false,
            },
        }
    }

    impl Scenario {
        fn new() -> Self {
            let now = Instant::now() + Duration::from_secs(1000);
            Self {
                silences: SilentFeeds::default(),
                began: now,
                now,
            }
        }

        /// Returns true if the worker is queried at this second, after a silence of `silent_for` seconds.
        fn queried(&mut self, seconds: u64, silent_for: u64) -> bool {
            self.now = self.began + Duration::from_secs(seconds);
            !self.silences.due(&[feed(silent_for, false)], self.now).is_empty()
        }

        fn suspects(&mut self, computed_tokens: f64) -> bool {
            self.suspects_after(0.0, computed_tokens)
        }

        fn suspects_after(&mut self, requests: f64, computed_tokens: f64) -> bool {
            let used = CacheUse {
                computed_tokens,
                requests,
                block_tokens: Some(32),
            };
            self.silences.learn(WORKER, &[(1, used)].into(), self.now)
        }
    }

    #[test]
    fn an_engine_that_computed_blocks_while_its_feed_was_silent_is_suspect() {
        let mut scenario = Scenario::new();
        assert!(!scenario.queried(0, 4));
        assert!(scenario.queried(1, 5));
        assert!(!scenario.suspects(10_000.0));
        assert!(!scenario.queried(5, 9));
        assert!(scenario.queried(6, 10));
        assert!(!scenario.suspects(10_000.0 + 8.0 * 32.0));
        assert!(scenario.queried(16, 20));
        assert!(scenario.suspects(10_000.0 + 8.0 * 32.0 + 1.0));
    }

    #[test]
    fn the_last_tokens_of_cached_prompts_make_no_engine_suspect() {
        let mut scenario = Scenario::new();
        assert!(scenario.queried(0, 5));
        assert!(!scenario.suspects_after(100.0, 10_000.0));
        // Each of 40 requests computed the 7 tokens that fill no block.
        assert!(scenario.queried(10, 15));
        assert!(!scenario.suspects_after(140.0, 10_000.0 + 40.0 * 7.0));
        // One more request computed nine blocks.
        assert!(scenario.queried(30, 35));
        assert!(scenario.suspects_after(141.0, 10_000.0 + 40.0 * 32.0 + 9.5 * 32.0));
    }

    #[test]
    fn tokens_computed_before_an_event_are_not_counted() {
        let mut scenario = Scenario::new();
        assert!(scenario.queried(0, 5));
        assert!(!scenario.suspects(0.0));
        assert!(!scenario.queried(4, 1));
        assert!(scenario.queried(10, 7));
        assert!(!scenario.suspects(1e6));
        assert!(scenario.queried(20, 17));
        assert!(!scenario.suspects(1e6));
    }

    #[test]
    fn an_idle_engine_is_queried_ever_more_rarely() {
        let mut scenario = Scenario::new();
        let queried: Vec<u64> = (0..300)
            .filter(|second| scenario.queried(*second, second + 5))
            .collect();
        assert_eq!(queried, [0, 5, 15, 35, 75, 135, 195, 255]);
    }

    #[test]
    fn feeds_that_look_after_themselves_cause_no_query() {
        let mut silences = SilentFeeds::default();
        assert!(silences.due(&[feed(500, true)], Instant::now()).is_empty());
    }
}
