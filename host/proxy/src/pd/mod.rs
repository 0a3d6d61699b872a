//! Requests that two workers answer: one computes the prompt, the other takes its KV cache over and decodes.
//!
//! See `host/adr/0009-two-legs.md`.

mod spec;

pub use self::spec::PdSpec;
