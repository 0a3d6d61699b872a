//! Prefill-decode disaggregation: one worker computes the prompt, another takes its KV cache over and decodes.
//!
//! `pair.rs` sends one request to a pair. `sequential.rs` and `concurrent.rs` are its two forms. `decode_prediction.rs`
//! has the index expect the prompt at the decode worker.
//! `inference_api` builds the bodies. See `host/adr/0009-prefill-decode.md`.

mod concurrent;
mod decode_prediction;
mod detect;
mod evidence;
pub(crate) mod leg_error;
mod pair;
mod prefill;
mod sequential;
mod spec;
mod watch;

pub(crate) use self::detect::Detection;
pub use self::detect::DialectReport;
pub(crate) use self::pair::{KeptPrompt, PrefillLeg, SplitAnswer, WorkerPair, send};
pub use self::spec::PdSpec;
pub(crate) use self::spec::{Handover, PdPool};
pub(crate) use self::watch::keep_bootstraps;
