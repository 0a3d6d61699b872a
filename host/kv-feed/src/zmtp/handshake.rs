//! The handshake after the greetings, for either mechanism.

use super::command::{Command, command, metadata, property};
use super::curve::{CurveClient, CurveKeys, CurveSecrets};
use super::fault::Fault;

/// How a connection is secured.
pub(super) enum Mechanism {
    /// Not at all.
    Null,
    /// By keys.
    Curve(Box<CurveClient>),
}

impl Mechanism {
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

/// What the socket is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocketRole {
    /// Messages whose topic begins so.
    Subscriber {
        /// Empty for all.
        topic: Box<[u8]>,
    },
    /// A replay from a number: `["", number]`, for a ROUTER to see three frames.
    Requester {
        /// The first number wanted.
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

/// What a command of the handshake leads to.
pub(super) enum Progress {
    /// This command is sent, and another awaited.
    Send(Vec<u8>),
    /// The connection is ready.
    Ready,
}

/// Returns the first command, sent after the peer's greeting.
pub(super) fn begin(mechanism: &mut Mechanism, role: &SocketRole) -> Result<Vec<u8>, Fault> {
    match mechanism {
        Mechanism::Null => Ok(command("READY", &role.metadata())),
        Mechanism::Curve(client) => client.hello(),
    }
}

/// Takes a command of the peer.
pub(super) fn proceed(mechanism: &mut Mechanism, role: &SocketRole, body: &[u8]) -> Result<Progress, Fault> {
    let opened;
    let properties = match (mechanism, Command::parse(body)?) {
        (_, Command::Error) => return Err(Fault::Refused),
        (Mechanism::Null, Command::Ready(properties)) => properties,
        (Mechanism::Curve(client), Command::Welcome(data)) => {
            return client.initiate(data, &role.metadata()).map(Progress::Send);
        }
        (Mechanism::Curve(client), Command::Ready(data)) => {
            opened = client.ready(data)?;
            &opened
        }
        _ => return Err(Fault::Malformed),
    };
    match property(properties, "Socket-Type")? {
        Some(peer) if role.fits(peer) => Ok(Progress::Ready),
        _ => Err(Fault::SocketType),
    }
}
