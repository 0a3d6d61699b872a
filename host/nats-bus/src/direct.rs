//! Direct messages between two routers of a fleet, over a connection of their own.

use async_nats::{Client, Event, Subscriber};
use futures_util::StreamExt as _;
use replicas::{DirectBus, DirectEvent, RouterId};
use tokio::sync::mpsc;

use crate::client::{self, NatsError, NatsOptions};
use crate::subject::Subjects;

/// Most bytes of a message.
const MOST_BYTES: usize = 256 << 10;

/// Direct messages over NATS.
#[derive(Debug)]
pub struct NatsDirect {
    client: Client,
    subscriber: Subscriber,
    /// Read, so that the client does not drop newer events.
    events: mpsc::Receiver<Event>,
    subjects: Subjects,
}

impl NatsDirect {
    /// Starts the client. It returns before a server is reached.
    ///
    /// # Errors
    /// [`NatsError`] where options or files are invalid.
    pub async fn start(options: &NatsOptions, router: RouterId) -> Result<Self, NatsError> {
        let (client, events) = client::start(options).await?;
        let subjects = Subjects::new(&options.fleet, router);
        let subscriber = client
            .subscribe(subjects.own_direct())
            .await
            .map_err(NatsError::Subscribe)?;
        Ok(Self {
            client,
            subscriber,
            events,
            subjects,
        })
    }
}

impl DirectBus for NatsDirect {
    fn send(&self, to: RouterId, payload: Vec<u8>) -> bool {
        client::publish(&self.client, self.subjects.direct(to), payload)
    }

    async fn next(&mut self) -> DirectEvent {
        loop {
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(Event::Closed) | None => return DirectEvent::Closed,
                    Some(_) => {}
                },
                message = self.subscriber.next() => {
                    let Some(message) = message else { return DirectEvent::Closed };
                    let from = self.subjects.parse_direct(&message.subject);
                    let Some(from) = from.filter(|_| message.payload.len() <= MOST_BYTES) else {
                        continue;
                    };
                    return DirectEvent::Message { from, payload: message.payload.to_vec() };
                }
            }
        }
    }
}
