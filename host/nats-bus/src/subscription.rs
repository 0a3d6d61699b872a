//! Connection of its own that receives the messages of one subject.

use async_nats::{Client, Subscriber};
use replicas::RouterId;

use crate::client::{self, NatsError, NatsOptions};
use crate::faults::LoggedEvents;
use crate::subject::Subjects;

/// A client, its subscription, and the events of its connection.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) client: Client,
    pub(crate) subscriber: Subscriber,
    /// Must be read, so that the client does not drop newer events.
    pub(crate) events: LoggedEvents,
    pub(crate) subjects: Subjects,
}

impl Subscription {
    /// Starts a client that receives the messages of `subject`. It returns before a server is reached.
    ///
    /// # Errors
    /// [`NatsError`] where options or files are invalid.
    pub(crate) async fn start(
        options: &NatsOptions,
        router: RouterId,
        subject: impl FnOnce(&Subjects) -> String,
    ) -> Result<Self, NatsError> {
        let (client, events) = client::start(options).await?;
        let subjects = Subjects::new(&options.fleet, router);
        let subscriber = client.subscribe(subject(&subjects)).await;
        Ok(Self {
            client,
            subscriber: subscriber.map_err(NatsError::Subscribe)?,
            events: LoggedEvents::new(events),
            subjects,
        })
    }
}
