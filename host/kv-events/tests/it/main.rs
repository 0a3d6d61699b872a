//! The decoders from outside: bytes in, events or reasons out.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod captured_objects;
mod captures;
mod claims;
mod encode;
mod envelope;
mod event;
mod frames;
mod hybrid;
mod object_keys;
mod objects;
mod recordings;
mod rejected;
mod removed;
mod robust;
mod sparse;
mod stored;
mod vectors;
