//! HTTP client of one worker: its connections, TLS, requests, and response bodies that own their connection.
//!
//! A [`ConnectionPool`] belongs to one worker URL. [`ConnectionPool::forward`] sends a client's request,
//! [`ConnectionPool::query`] one of the router's own. Dropping a response body cancels its request.
//! The crate contains no routing decision, no cache index and no server. It is the only HTTP client of the router.

mod address;
mod authorization;
mod client;
mod connection;
mod dial;
mod driver_waker;
mod http2;
mod page;
mod permit;
mod pool;
mod read;
mod send;
#[cfg(test)]
mod send_tests;
mod server_error;
mod tasks;
pub mod tls;
mod upgrade;

pub use address::UrlError;
pub use authorization::Authorization;
pub use client::{WorkerClient, WorkerClientError, WorkerReply};
pub use connection::WorkerBody;
pub use dial::ConnectError;
pub use page::PageError;
pub use pool::{ConnectionPool, ConnectionsSpec};
pub use read::{ReadError, read_body};
pub use send::{
    ConnectionReuse, OutgoingRequest, SendError, SendTimeouts, X_DATA_PARALLEL_RANK, states_length,
};
pub use server_error::ServerClientError;
pub use upgrade::UpgradedStream;
