//! Tests of the crate's guarantees, across its modules.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's own functions fail by panicking too"
)]

mod case;
mod chats;
mod conversations;
mod engine;
mod harmony;
mod hostile;
mod prefixes;
mod shapes;
mod templates;
