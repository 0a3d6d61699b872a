//! Events of requests and workers that policies receive.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::fault::PolicyFault;
use crate::worker::Worker;

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A request, or a leg of one, goes out to a worker. The number: tokens of its prompt.
    Dispatched,
    /// The first token of a streamed answer came, or a prefill leg ended. The number: milliseconds since the dispatch.
    FirstToken,
    /// The answer was read to its end. The number: milliseconds since the dispatch.
    Finished,
    /// The worker did not answer, refused for its own trouble, or broke off. The number: milliseconds since the
    /// dispatch.
    Failed,
    /// The client left. The number: milliseconds since the dispatch.
    Abandoned,
    /// A worker is there.
    Joined,
    /// A worker is gone.
    Left,
    /// A worker does something else. The number: as the column `worker.role`.
    Role,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Dispatched,
        Self::FirstToken,
        Self::Finished,
        Self::Failed,
        Self::Abandoned,
        Self::Joined,
        Self::Left,
        Self::Role,
    ];

    /// Returns its name in the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dispatched => "request.dispatched",
            Self::FirstToken => "request.first-token",
            Self::Finished => "request.finished",
            Self::Failed => "request.failed",
            Self::Abandoned => "request.abandoned",
            Self::Joined => "worker.joined",
            Self::Left => "worker.left",
            Self::Role => "worker.role",
        }
    }

    /// Returns the kind of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Some of the kinds.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct EventKinds(u32);

impl EventKinds {
    /// Kinds of request events.
    pub const REQUESTS: Self = Self::NONE
        .with(EventKind::Dispatched)
        .with(EventKind::FirstToken)
        .with(EventKind::Finished)
        .with(EventKind::Failed)
        .with(EventKind::Abandoned);
    /// No kind.
    pub const NONE: Self = Self(0);

    /// Returns these kinds and one more.
    #[must_use]
    pub const fn with(self, kind: EventKind) -> Self {
        Self(self.0 | 1 << kind as u32)
    }

    /// Returns whether it is among them.
    #[must_use]
    pub const fn has(self, kind: EventKind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }

    /// Returns whether one of `others` is among them.
    #[must_use]
    pub const fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns the kinds as bits, to be kept in an atomic.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the kinds of [`EventKinds::bits`].
    #[must_use]
    pub const fn of_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl FromIterator<EventKind> for EventKinds {
    fn from_iter<I: IntoIterator<Item = EventKind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for EventKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = EventKind::ALL.into_iter().filter(|kind| self.has(*kind));
        f.debug_set().entries(kinds.map(EventKind::as_str)).finish()
    }
}

/// Event of a request or a worker.
#[derive(Debug, Clone)]
pub struct Event {
    /// The event.
    pub kind: EventKind,
    /// Time in microseconds on the clock of [`RequestFacts::now_us`](crate::RequestFacts::now_us).
    pub at_us: u64,
    /// The request's number; 0 where a worker is all it is about.
    pub seq: u64,
    /// The request's session.
    pub session: Option<u64>,
    /// The worker. Kept here, since it may have left when the event is delivered.
    pub worker: Arc<Worker>,
    /// Number of the kind; NaN where it has none.
    pub number: f64,
}

/// The part of a policy that receives events, off the request path. Called by one thread at a time.
pub trait EventListener: Send + Sync + fmt::Debug {
    /// Returns the policy's name in the configuration.
    fn policy(&self) -> &str;

    /// Returns the kinds of events that it receives.
    fn kinds(&self) -> EventKinds;

    /// Returns whether it works by the clock.
    fn ticks(&self) -> bool;

    /// Handles some events of its kinds, in the order in which they happened.
    ///
    /// # Errors
    /// [`PolicyFault`]; the events are lost then.
    fn handle(&self, batch: &[Event], now_us: u64) -> Result<(), PolicyFault>;

    /// Works by the clock. Returns the time until its next tick.
    ///
    /// # Errors
    /// [`PolicyFault`].
    fn tick(&self, now_us: u64) -> Result<Duration, PolicyFault>;

    /// Ends the delivery of events. What is kept for it may be dropped.
    fn rest(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_name_and_stands_for_itself_in_a_set() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::find(kind.as_str()), Some(kind));
            let alone = EventKinds::NONE.with(kind);
            assert!(
                EventKind::ALL
                    .into_iter()
                    .all(|other| alone.has(other) == (other == kind))
            );
            assert_eq!(EventKinds::of_bits(alone.bits()), alone);
            let is_request = kind.as_str().starts_with("request.");
            assert_eq!(EventKinds::REQUESTS.meets(alone), is_request);
        }
        assert_eq!(EventKind::find("request.finnished"), None);
    }
}
