//! The KV-cache event wire formats of engines and of stores, decoded into routing's events, and sequence tracking.
//!
//! Everything here is a function of bytes and numbers. It must not know about sockets, time, or what an index does
//! with the events. vLLM, SGLang and Mooncake's store share one wire: ZMQ messages `[topic, sequence, payload]` whose
//! payload is a MessagePack batch. The layouts differ between versions and all of them are accepted, checked
//! against captures of real engines (vLLM 0.32, SGLang 0.5.23 and older forms) in `tests/it/captures.rs`.
//! What each decoder does with bytes that nobody meant to send is searched for in `fuzz/`.

mod batch;
mod event;
mod frames;
mod hex;
mod object;
mod object_key;
mod reject;
mod sequence;
mod sparse;
mod values;
mod wire;

pub use batch::{DecodeError, Decoded, DecodedBatch, DecodedObjects, decode_batch, decode_objects};
pub use frames::{FrameError, ReplayPart, SequencedPayload, live_message, replay_part};
pub use object_key::{ObjectKeyError, parse_object_key};
pub use reject::{EventKind, RejectReason, RejectedEvent, Rejections};
pub use sequence::{SequenceTracker, Step, fingerprint};
