//! Client of the NATS servers: options, credentials, and its reconnects.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Auth, Client, ConnectOptions, Event};
use futures_util::FutureExt as _;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::secret_file::SecretFile;
use crate::user_key;

/// Messages that wait for the socket. More are dropped: gauges are absolute, so the next one makes up for them.
const OUTGOING: usize = 256;
/// Received messages that wait for the exchange. More are dropped.
const INCOMING: usize = 16_384;
/// Events of the connection that wait for their reader.
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
    /// Credentials file of NATS. It is read again for each attempt to connect.
    pub credentials: Option<PathBuf>,
    /// User and password, if the servers have users without credentials files.
    pub login: Option<NatsLogin>,
    /// Certificates of the authorities that sign the servers' certificates, as PEM.
    pub ca: Option<PathBuf>,
}

/// User and password.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsLogin {
    /// Name of the user.
    pub user: String,
    /// File with the password, less the end of its line. It is read again for each attempt to connect.
    pub password_file: PathBuf,
}

impl std::fmt::Debug for NatsLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsLogin").field("user", &self.user).finish()
    }
}

impl NatsLogin {
    fn password(file: &Path) -> std::io::Result<String> {
        let password = std::fs::read_to_string(file)?;
        Ok(password.trim_end_matches(['\n', '\r']).to_owned())
    }

    /// Returns options that authenticate with the password as the file then has it.
    fn options(self) -> Result<ConnectOptions, NatsError> {
        let file = SecretFile::open(self.password_file, Self::password)?;
        Ok(ConnectOptions::with_auth_callback(move |_| {
            let mut auth = Auth::new();
            auth.username = Some(self.user.clone());
            auth.password = Some(file.secret());
            std::future::ready(Ok(auth))
        }))
    }
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

/// Publishes without a wait. Returns `false` if no server is connected, or the client has no room.
pub(crate) fn publish(client: &Client, subject: String, payload: Vec<u8>) -> bool {
    if client.connection_state() != State::Connected {
        return false;
    }
    matches!(
        client.publish(subject, payload.into()).now_or_never(),
        Some(Ok(()))
    )
}

/// Starts a client. It returns before a server is reached, and connects again for as long as it lives.
pub(crate) async fn start(options: &NatsOptions) -> Result<(Client, mpsc::Receiver<Event>), NatsError> {
    let (sender, events) = mpsc::channel(EVENTS);
    let authenticated = match (&options.credentials, &options.login) {
        (Some(file), _) => user_key::options(file.clone())?,
        (None, Some(login)) => login.clone().options()?,
        (None, None) => ConnectOptions::new(),
    };
    let mut connect = authenticated
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
    if let Some(path) = &options.ca {
        connect = connect.add_root_certificates(path.clone()).require_tls(true);
    }
    let client = connect
        .connect(&options.servers)
        .await
        .map_err(NatsError::Connect)?;
    Ok((client, events))
}
