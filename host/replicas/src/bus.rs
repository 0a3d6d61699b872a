//! Bus between routers: what the exchange needs of a messaging system.

use std::future::Future;

use crate::id::RouterId;

/// Connection of one router to the others.
pub trait Bus: Send + 'static {
    /// Publishes a message to all other routers of the fleet. Returns whether it was taken: a bus that is away, or has
    /// no room, drops it at once. It never waits.
    fn publish(&self, subject: FleetSubject, payload: Vec<u8>) -> bool;

    /// Waits for the next event. Dropping the future loses no event.
    fn next(&mut self) -> impl Future<Output = BusEvent> + Send;
}

/// Connection of one router for messages to single other routers. Their bytes never delay those of a [`Bus`].
pub trait DirectBus: Send + 'static {
    /// Sends a message to one router. Returns whether it was taken, as [`Bus::publish`] does.
    fn send(&self, to: RouterId, payload: Vec<u8>) -> bool;

    /// Waits for the next event. Dropping the future loses no event.
    fn next(&mut self) -> impl Future<Output = DirectEvent> + Send;
}

/// Event of a [`DirectBus`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectEvent {
    /// A message of another router.
    Message {
        /// Sender.
        from: RouterId,
        /// Payload.
        payload: Vec<u8>,
    },
    /// The bus has ended.
    Closed,
}

/// Event of a bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusEvent {
    /// The connection stands, for the first time or again. Messages may have been lost before.
    Connected,
    /// The connection broke off. The bus connects again by itself.
    Disconnected,
    /// A message of another router.
    Message {
        /// Subject.
        subject: FleetSubject,
        /// Payload.
        payload: Vec<u8>,
    },
    /// The bus has ended.
    Closed,
}

/// Subject of a message within the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetSubject {
    /// Kind of the message.
    pub kind: SubjectKind,
    /// Sender.
    pub router: RouterId,
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectKind {
    /// State and hashes of a router.
    Hello,
    /// A router ends.
    Goodbye,
    /// Gauges of a router.
    Load,
    /// Usage of a router against limits.
    Usage,
    /// Samples of the workers' costs.
    Cost,
}

impl SubjectKind {
    /// Returns the name in a subject.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Goodbye => "bye",
            Self::Load => "load",
            Self::Usage => "usage",
            Self::Cost => "cost",
        }
    }

    /// Reads the name of a kind.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Hello, Self::Goodbye, Self::Load, Self::Usage, Self::Cost]
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }
}
