//! TLS of the listeners: server certificates and client authentication.

mod expiry;
mod server;

pub use self::server::{ServerTls, ServerTlsParts};

#[cfg(test)]
mod tests;
