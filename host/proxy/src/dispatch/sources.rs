//! Sources of facts for decisions that all requests share.

use std::sync::Arc;

use kv_index::SharedPrefixIndex;
use routing::LeastLoaded;

use crate::base::throttle::Throttle;
use crate::fleet::feeds::LiveFeeds;
use crate::observe::events::EventHub;

/// Index, live feeds, fallback policy and clock of decisions.
#[derive(Debug)]
pub(crate) struct DecisionSources {
    /// Index of the prefixes that each worker holds.
    pub(crate) index: Arc<SharedPrefixIndex>,
    /// Workers whose events the index receives.
    pub(crate) live: Arc<LiveFeeds>,
    pub(crate) fallback: LeastLoaded,
    /// Throttle of the log of policies' faults.
    pub(crate) fault_log: Throttle,
    pub(crate) events: Arc<EventHub>,
}

impl DecisionSources {
    /// Creates the sources of a fleet.
    pub(crate) fn new(index: Arc<SharedPrefixIndex>, live: Arc<LiveFeeds>, events: Arc<EventHub>) -> Self {
        Self {
            index,
            live,
            events,
            fallback: LeastLoaded::default(),
            fault_log: Throttle::default(),
        }
    }

    /// Returns the microseconds since the start, on the clock of the policies.
    pub(crate) fn now_us(&self) -> u64 {
        self.events.now_us()
    }
}
