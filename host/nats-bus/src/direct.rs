//! Direct messages between two routers of a fleet, over a connection of their own.

use async_nats::Event;
use futures_util::StreamExt as _;
use replicas::{DirectBus, DirectEvent, RouterId};

use crate::client::{self, NatsError, NatsOptions};
use crate::subject::Subjects;
use crate::subscription::Subscription;

/// Most bytes of a message.
const MOST_BYTES: usize = 256 << 10;

/// Direct messages over NATS.
#[derive(Debug)]
pub struct NatsDirect(Subscription);

impl NatsDirect {
    /// Starts the client. It returns before a server is reached.
    ///
    /// # Errors
    /// [`NatsError`] where options or files are invalid.
    pub async fn start(options: &NatsOptions, router: RouterId) -> Result<Self, NatsError> {
        let subscription = Subscription::start(options, router, Subjects::own_direct).await?;
        Ok(Self(subscription))
    }
}

impl DirectBus for NatsDirect {
    fn send(&self, to: RouterId, payload: Vec<u8>) -> bool {
        client::publish(&self.0.client, self.0.subjects.direct(to), payload)
    }

    async fn next(&mut self) -> DirectEvent {
        loop {
            tokio::select! {
                biased;
                event = self.0.events.recv() => match event {
                    Some(Event::Closed) | None => return DirectEvent::Closed,
                    Some(_) => {}
                },
                message = self.0.subscriber.next() => {
                    let Some(message) = message else { return DirectEvent::Closed };
                    let from = self.0.subjects.parse_direct(&message.subject);
                    let Some(from) = from.filter(|_| message.payload.len() <= MOST_BYTES) else {
                        continue;
                    };
                    return DirectEvent::Message { from, payload: message.payload.to_vec() };
                }
            }
        }
    }
}
