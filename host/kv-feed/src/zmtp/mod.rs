//! ZMTP 3 (ZeroMQ's wire protocol), as far as a subscriber and a replay requester need it: RFC 23 and 37, with the
//! mechanisms NULL and CURVE (RFC 26).
//!
//! Pure: received bytes are the input, events and bytes to send the output. No sockets, no time. Every announced
//! length is checked against the limits before memory is allocated for it.

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
pub(crate) use session::{SessionEvent, SocketRole, ZmtpSession};

#[cfg(test)]
mod claims;
#[cfg(test)]
mod curve_tests;
#[cfg(test)]
mod session_tests;
