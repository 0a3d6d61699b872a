//! Protocol faults of a peer: each ends its connection.

use thiserror::Error;

/// Reason why a connection to a publisher was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum Fault {
    /// The first bytes are not those of ZMTP 3.
    #[error("the peer does not speak ZMTP 3")]
    NotZmtp,
    /// A frame or a command breaks the protocol.
    #[error("the peer sent a frame that breaks ZMTP")]
    Malformed,
    /// The peer did not finish the handshake in time.
    #[error("the peer did not finish the handshake in time")]
    HandshakeTimeout,
    /// The peer uses another mechanism, such as CURVE where no keys are configured.
    #[error("the peer does not use the security mechanism that is configured")]
    Mechanism,
    /// The peer's socket is of a type that does not publish or replay.
    #[error("the peer's socket is of another type")]
    SocketType,
    /// The peer refused the handshake.
    #[error("the peer refused the handshake")]
    Refused,
    /// A CURVE box cannot be opened, or a nonce does not grow.
    #[error("a CURVE box of the peer cannot be opened: are the keys right?")]
    Curve,
    /// A frame is larger than the limit.
    #[error("a frame is larger than `max-frame`")]
    FrameTooLarge,
    /// The frames of a message are larger than the limit.
    #[error("a message is larger than `max-message`")]
    MessageTooLarge,
    /// A message has more frames than any event message.
    #[error("a message has too many frames")]
    TooManyFrames,
    /// A message was begun and not finished in time.
    #[error("a message was not finished in time")]
    Unfinished,
}

impl Fault {
    /// All faults, in the order of their numbers (`fault as usize`).
    pub const ALL: [Self; 11] = [
        Self::NotZmtp,
        Self::Malformed,
        Self::HandshakeTimeout,
        Self::Mechanism,
        Self::SocketType,
        Self::Refused,
        Self::Curve,
        Self::FrameTooLarge,
        Self::MessageTooLarge,
        Self::TooManyFrames,
        Self::Unfinished,
    ];

    /// Returns the fault as a metrics label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NotZmtp => "not-zmtp",
            Self::Malformed => "malformed",
            Self::HandshakeTimeout => "handshake-timeout",
            Self::Mechanism => "mechanism",
            Self::SocketType => "socket-type",
            Self::Refused => "refused",
            Self::Curve => "curve",
            Self::FrameTooLarge => "frame-too-large",
            Self::MessageTooLarge => "message-too-large",
            Self::TooManyFrames => "too-many-frames",
            Self::Unfinished => "unfinished-message",
        }
    }

    /// Returns `true` if a limit was exceeded: the same message exceeds it again.
    #[must_use]
    pub fn is_limit(self) -> bool {
        matches!(
            self,
            Self::FrameTooLarge | Self::MessageTooLarge | Self::TooManyFrames
        )
    }

    /// Returns `true` if the handshake failed: no message of this connection was received.
    #[must_use]
    pub fn is_handshake(self) -> bool {
        matches!(
            self,
            Self::NotZmtp | Self::HandshakeTimeout | Self::Mechanism | Self::SocketType | Self::Refused
        )
    }
}
