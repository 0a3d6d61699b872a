//! The part of ZMTP 3 (ZeroMQ's wire protocol) that a subscriber and a requester of replays need: RFC 23 and 37, with the
//! mechanisms NULL and CURVE (RFC 26).
//!
//! Pure: bytes come in, events and bytes to send come out. It must not know about sockets or the time. Every length that a
//! peer announces is checked against the limits before memory is taken for it.

mod command;
mod curve;
mod fault;
mod frames;
mod greeting;
mod handshake;
mod limits;
mod session;

pub use curve::CurveKeys;
pub(crate) use curve::CurveSecrets;
pub use fault::Fault;
pub(crate) use frames::FRAME_COST;
pub use limits::FeedLimits;
pub(crate) use session::{Event, Session, SocketRole};

#[cfg(test)]
mod claims;
#[cfg(test)]
mod curve_tests;
#[cfg(test)]
mod session_tests;
