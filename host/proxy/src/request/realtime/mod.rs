//! WebSockets: requests that switch their connection to another protocol.
//!
//! Such a request is placed like any other. When its worker switches protocols, so does the router: `switch.rs` makes
//! the answer's head, with a [`TunnelSlot`] in its extensions. The client's connection keeps it as its
//! [`OpenedTunnel`], and runs it once the head is written (`edge/connection.rs`). The lease, the permit and the
//! client's reservation last as long as the tunnel.

mod flow;
mod metrics;
mod request;
mod switch;
mod tunnel;

pub(crate) use self::metrics::TunnelMetrics;
pub(crate) use self::request::check;
pub(crate) use self::switch::{request_upgrade, response};
pub(crate) use self::tunnel::{OpenedTunnel, TunnelSlot};
