//! Bus between the routers of a fleet: core publish and subscribe.

use std::time::Duration;

use async_nats::Event;
use futures_util::StreamExt as _;
use replicas::{Bus, BusEvent, FleetSubject, MOST_MESSAGE_BYTES, RouterId};
use tracing::warn;

use crate::client::{self, NatsError, NatsOptions};
use crate::faults::Faults;
use crate::subject::Subjects;
use crate::subscription::Subscription;

/// The bus over NATS.
#[derive(Debug)]
pub struct NatsBus {
    connection: Subscription,
    faults: Faults,
}

impl NatsBus {
    /// Starts the client. It returns before a server is reached.
    ///
    /// # Errors
    /// [`NatsError`] where options or files are invalid.
    pub async fn start(options: &NatsOptions, router: RouterId) -> Result<Self, NatsError> {
        Ok(Self {
            connection: Subscription::start(options, router, Subjects::all).await?,
            faults: Faults::default(),
        })
    }

    /// Sends what waits, for at most that time.
    pub async fn flush(&self, longest: Duration) {
        // A server that is away has no use for it.
        let _ = tokio::time::timeout(longest, self.connection.client.flush()).await;
    }
}

impl Bus for NatsBus {
    fn publish(&self, subject: FleetSubject, payload: Vec<u8>) -> bool {
        let Subscription { client, subjects, .. } = &self.connection;
        client::publish(client, subjects.name(subject.kind), payload)
    }

    async fn next(&mut self) -> BusEvent {
        loop {
            tokio::select! {
                biased;
                event = self.connection.events.recv() => {
                    let why = event.as_ref().and_then(|event| self.faults.take_in(event));
                    if let Some(why) = why {
                        warn!(why, "the connection of the bus between routers has a fault");
                    }
                    match event {
                        Some(Event::Connected) => return BusEvent::Connected,
                        Some(Event::Disconnected) => return BusEvent::Disconnected,
                        Some(Event::Closed) | None => return BusEvent::Closed,
                        Some(_) => {}
                    }
                }
                message = self.connection.subscriber.next() => {
                    let Some(message) = message else { return BusEvent::Closed };
                    let subject = self.connection.subjects.parse(&message.subject);
                    let Some(subject) = subject.filter(|_| message.payload.len() <= MOST_MESSAGE_BYTES) else {
                        continue;
                    };
                    return BusEvent::Message { subject, payload: message.payload.to_vec() };
                }
            }
        }
    }
}
