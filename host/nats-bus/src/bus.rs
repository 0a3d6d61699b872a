//! Bus between the routers of a fleet: core publish and subscribe.

use std::time::Duration;

use async_nats::Event;
use futures_util::StreamExt as _;
use replicas::{Bus, BusEvent, FleetSubject, MOST_MESSAGE_BYTES, RouterId};

use crate::client::{self, NatsError, NatsOptions};
use crate::subject::Subjects;
use crate::subscription::Subscription;

/// The bus over NATS.
#[derive(Debug)]
pub struct NatsBus(Subscription);

impl NatsBus {
    /// Starts the client. It returns before a server is reached.
    ///
    /// # Errors
    /// [`NatsError`] where options or files are invalid.
    pub async fn start(options: &NatsOptions, router: RouterId) -> Result<Self, NatsError> {
        let subscription = Subscription::start(options, router, Subjects::all).await?;
        Ok(Self(subscription))
    }

    /// Sends what waits, for at most that time.
    pub async fn flush(&self, longest: Duration) {
        // A server that is away has no use for it.
        let _ = tokio::time::timeout(longest, self.0.client.flush()).await;
    }
}

impl Bus for NatsBus {
    fn publish(&self, subject: FleetSubject, payload: Vec<u8>) -> bool {
        client::publish(&self.0.client, self.0.subjects.name(subject.kind), payload)
    }

    async fn next(&mut self) -> BusEvent {
        loop {
            tokio::select! {
                biased;
                event = self.0.events.recv() => match event {
                    Some(Event::Connected) => return BusEvent::Connected,
                    Some(Event::Disconnected) => return BusEvent::Disconnected,
                    Some(Event::Closed) | None => return BusEvent::Closed,
                    Some(_) => {}
                },
                message = self.0.subscriber.next() => {
                    let Some(message) = message else { return BusEvent::Closed };
                    let subject = self.0.subjects.parse(&message.subject);
                    let Some(subject) = subject.filter(|_| message.payload.len() <= MOST_MESSAGE_BYTES) else {
                        continue;
                    };
                    return BusEvent::Message { subject, payload: message.payload.to_vec() };
                }
            }
        }
    }
}
