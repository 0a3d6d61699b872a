//! Requests that two workers answer: one computes the prompt, the other takes its KV cache over and decodes.
//!
//! [`Course`] is such a request over all its tries; `sequential.rs` and `concurrent.rs` are its two ways; what is sent
//! is made by `inference_api`. See `host/adr/0009-prefill-decode.md`.

mod bootstrap;
mod concurrent;
mod course;
mod detect;
mod leg;
mod prefill;
mod sequential;
mod spec;

pub(crate) use self::bootstrap::{Bootstrap, keep_bootstraps};
pub(crate) use self::course::{Course, PairAnswer};
pub(crate) use self::detect::Detection;
pub use self::detect::DialectReport;
pub(crate) use self::leg::{LegError, Setback, is_the_workers_trouble};
pub use self::spec::PdSpec;
pub(crate) use self::spec::{Handover, PdPool};
