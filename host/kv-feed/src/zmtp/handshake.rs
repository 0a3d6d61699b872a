//! Handshake after the greetings, for either mechanism.

use super::command::{PeerCommand, command, metadata, property};
use super::curve::{CurveClient, CurveKeys, CurveSecrets};
use super::fault::Fault;

/// Security mechanism of a connection.
pub(super) enum SecurityMechanism {
    /// No security.
    Null,
    /// CURVE keys.
    Curve(Box<CurveClient>),
}

impl SecurityMechanism {
    pub(super) fn new(curve: Option<(CurveKeys, CurveSecrets)>) -> Self {
        match curve {
            None => Self::Null,
            Some((keys, secrets)) => Self::Curve(Box::new(CurveClient::new(keys, secrets))),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Curve(_) => "CURVE",
        }
    }
}

/// Role of the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocketRole {
    /// Subscriber to messages with a topic prefix.
    Subscriber {
        /// Topic prefix; empty for all.
        topic: Box<[u8]>,
    },
    /// Requester of a replay from a number: `["", number]`, so that a ROUTER receives three frames.
    Requester {
        /// First requested number.
        from: u64,
    },
}

impl SocketRole {
    fn metadata(&self) -> Vec<u8> {
        match self {
            Self::Subscriber { .. } => metadata(&[("Socket-Type", b"SUB")]),
            Self::Requester { .. } => metadata(&[("Socket-Type", b"DEALER"), ("Identity", b"")]),
        }
    }

    fn fits(&self, peer: &[u8]) -> bool {
        match self {
            Self::Subscriber { .. } => matches!(peer, b"PUB" | b"XPUB"),
            Self::Requester { .. } => matches!(peer, b"ROUTER" | b"DEALER" | b"REP"),
        }
    }
}

/// Result of a handshake command.
pub(super) enum HandshakeProgress {
    /// Send this command and wait for the next.
    Send(Vec<u8>),
    /// The connection is ready.
    Ready,
}

/// Returns the first command, sent after the peer's greeting.
pub(super) fn begin(mechanism: &mut SecurityMechanism, role: &SocketRole) -> Result<Vec<u8>, Fault> {
    match mechanism {
        SecurityMechanism::Null => Ok(command("READY", &role.metadata())),
        SecurityMechanism::Curve(client) => client.hello(),
    }
}

/// Handles a command of the peer.
pub(super) fn proceed(
    mechanism: &mut SecurityMechanism,
    role: &SocketRole,
    body: &[u8],
) -> Result<HandshakeProgress, Fault> {
    let opened;
    let properties = match (mechanism, PeerCommand::parse(body)?) {
        (_, PeerCommand::Error) => return Err(Fault::Refused),
        (SecurityMechanism::Null, PeerCommand::Ready(properties)) => properties,
        (SecurityMechanism::Curve(client), PeerCommand::Welcome(data)) => {
            return client
                .initiate(data, &role.metadata())
                .map(HandshakeProgress::Send);
        }
        (SecurityMechanism::Curve(client), PeerCommand::Ready(data)) => {
            opened = client.ready(data)?;
            &opened
        }
        _ => return Err(Fault::Malformed),
    };
    match property(properties, "Socket-Type")? {
        Some(peer) if role.fits(peer) => Ok(HandshakeProgress::Ready),
        _ => Err(Fault::SocketType),
    }
}
