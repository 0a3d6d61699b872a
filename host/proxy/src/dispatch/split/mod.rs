//! Prefill-decode disaggregation: one worker computes the prompt, another takes its KV cache over and decodes.
//!
//! [`RetryState`] is such a request over all its attempts. `sequential.rs` and `concurrent.rs` are its two forms.
//! `inference_api` builds the bodies. See `host/adr/0009-prefill-decode.md`.

mod concurrent;
mod course;
mod detect;
mod leg;
mod prefill;
mod sequential;
mod spec;
mod watch;

pub(crate) use self::course::{RetryState, UpstreamResponse};
pub(crate) use self::detect::Detection;
pub use self::detect::DialectReport;
pub(crate) use self::leg::{AttemptError, AttemptFailure, is_retryable_status};
pub use self::spec::PdSpec;
pub(crate) use self::spec::{Handover, PdPool};
pub(crate) use self::watch::keep_bootstraps;
