//! Bus between the routers of a fleet over NATS, with core publish and subscribe.
//!
//! The client connects in the background and connects again for as long as it lives, so a router starts and serves
//! without a server. Subjects are `conductor.FLEET.KIND.ROUTER`: a fleet receives only its own messages.

mod subject;

use std::path::PathBuf;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, Subscriber};
use futures_util::{FutureExt as _, StreamExt as _};
use replicas::{Bus, BusEvent, FleetSubject, MOST_MESSAGE_BYTES, RouterId};
use thiserror::Error;
use tokio::sync::mpsc;

use self::subject::Subjects;

/// Messages that wait for the socket. More are dropped: gauges are absolute, so the next one makes up for them.
const OUTGOING: usize = 256;
/// Received messages that wait for the exchange. More are dropped.
const INCOMING: usize = 16_384;
/// Events of the connection that wait for the exchange.
const EVENTS: usize = 64;
/// Interval of the client's pings: a server that does not answer two of them is left.
const PING: Duration = Duration::from_secs(2);
/// Longest time to connect to one server.
const CONNECT: Duration = Duration::from_secs(2);
/// Longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Servers and credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsOptions {
    /// Servers, such as `nats://nats-0:4222`. `tls://` requires TLS.
    pub servers: Vec<String>,
    /// Name of the fleet: letters, digits, `-` and `_`.
    pub fleet: String,
    /// Name of this router, as the server shows it.
    pub name: String,
    /// Credentials file of NATS.
    pub credentials: Option<PathBuf>,
    /// Certificates of the authorities that sign the servers' certificates, as PEM.
    pub ca: Option<PathBuf>,
}

/// Error of a client that cannot be started.
#[derive(Debug, Error)]
pub enum NatsError {
    /// The credentials file cannot be read.
    #[error("failed to read the NATS credentials `{path}`")]
    Credentials {
        /// File.
        path: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The client refuses its options.
    #[error("failed to start the NATS client")]
    Connect(#[source] async_nats::ConnectError),
    /// The subscription is refused.
    #[error("failed to subscribe to the fleet's subjects")]
    Subscribe(#[source] async_nats::SubscribeError),
}

/// The bus over NATS.
#[derive(Debug)]
pub struct NatsBus {
    client: Client,
    subscriber: Subscriber,
    events: mpsc::Receiver<Event>,
    subjects: Subjects,
}

impl NatsBus {
    /// Starts the client. It returns before a server is reached.
    ///
    /// # Errors
    /// [`NatsError`] where options or files are invalid.
    pub async fn start(options: &NatsOptions, router: RouterId) -> Result<Self, NatsError> {
        let (sender, events) = mpsc::channel(EVENTS);
        let mut connect = ConnectOptions::new()
            .name(&options.name)
            .no_echo()
            .retry_on_initial_connect()
            .ping_interval(PING)
            .connection_timeout(CONNECT)
            .client_capacity(OUTGOING)
            .subscription_capacity(INCOMING)
            .reconnect_delay_callback(|attempt| {
                let pause = Duration::from_millis(50 << attempt.min(5));
                pause.min(LONGEST_PAUSE)
            })
            .event_callback(move |event| {
                // Without room, an older event of the connection is still to be read.
                let _ = sender.try_send(event);
                std::future::ready(())
            });
        if let Some(path) = &options.credentials {
            connect = connect
                .credentials_file(path)
                .await
                .map_err(|source| NatsError::Credentials {
                    path: path.display().to_string(),
                    source,
                })?;
        }
        if let Some(path) = &options.ca {
            connect = connect.add_root_certificates(path.clone()).require_tls(true);
        }
        let client = connect
            .connect(&options.servers)
            .await
            .map_err(NatsError::Connect)?;
        let subjects = Subjects::new(&options.fleet, router);
        let subscriber = client
            .subscribe(subjects.all())
            .await
            .map_err(NatsError::Subscribe)?;
        Ok(Self {
            client,
            subscriber,
            events,
            subjects,
        })
    }

    /// Sends what waits, for at most that time.
    pub async fn flush(&self, longest: Duration) {
        // A server that is away has no use for it.
        let _ = tokio::time::timeout(longest, self.client.flush()).await;
    }
}

impl Bus for NatsBus {
    fn publish(&self, subject: FleetSubject, payload: Vec<u8>) -> bool {
        if self.client.connection_state() != State::Connected {
            return false;
        }
        let publish = self
            .client
            .publish(self.subjects.name(subject.kind), payload.into());
        matches!(publish.now_or_never(), Some(Ok(())))
    }

    async fn next(&mut self) -> BusEvent {
        loop {
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(Event::Connected) => return BusEvent::Connected,
                    Some(Event::Disconnected) => return BusEvent::Disconnected,
                    Some(Event::Closed) | None => return BusEvent::Closed,
                    Some(_) => {}
                },
                message = self.subscriber.next() => {
                    let Some(message) = message else { return BusEvent::Closed };
                    let subject = self.subjects.parse(&message.subject);
                    let Some(subject) = subject.filter(|_| message.payload.len() <= MOST_MESSAGE_BYTES) else {
                        continue;
                    };
                    return BusEvent::Message { subject, payload: message.payload.to_vec() };
                }
            }
        }
    }
}
