//! Decoders of the KV-cache event formats of engines and stores, and sequence tracking.
//!
//! Everything here is a function of bytes and numbers, independent of sockets, time and the index. vLLM, SGLang and
//! Mooncake's store share one format: ZMQ messages `[topic, sequence, payload]` whose payload is a MessagePack batch.
//! All layouts of their versions are accepted, and checked against captures of real engines in `tests/it/captures.rs`
//! (vLLM 0.32, SGLang 0.5.23 and older forms). `fuzz/` tests each decoder with arbitrary bytes.

mod batch;
mod event;
mod frames;
mod hex;
mod object;
mod object_key;
mod payload;
mod reject;
mod sequence;
mod sparse;
mod values;
mod wire;

pub use batch::{DecodeError, decode_batch, decode_objects};
pub use frames::{FrameError, ReplayPart, SequencedPayload, live_message, replay_part};
pub use object_key::{ObjectKeyError, parse_object_key};
pub use payload::{DecodedBatch, DecodedObjects, DecodedPayload};
pub use reject::{EventKind, RejectReason, RejectedEvent, RejectedEvents};
pub use sequence::{SequenceStep, SequenceTracker, fingerprint};
