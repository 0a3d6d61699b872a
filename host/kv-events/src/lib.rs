//! The engines' KV-cache event wire formats, decoded into routing's block events, and sequence tracking.
//!
//! Everything here is a function of bytes and numbers. It must not know about sockets, time, or what an index does
//! with the events. vLLM and SGLang share one wire: ZMQ messages `[topic, sequence, payload]` whose payload is a
//! MessagePack batch; the layouts differ between versions and all of them are accepted, checked
//! against captures of real engines (vLLM 0.32, SGLang 0.5.23 and older forms) in `tests/captures.rs`.

mod batch;
mod event;
mod frames;
mod reject;
mod sequence;
mod values;
mod wire;

pub use batch::{DecodeError, DecodedBatch, decode_batch};
pub use frames::{FrameError, ReplayPart, SequencedPayload, live_message, replay_part};
pub use reject::{EventKind, RejectReason, RejectedEvent};
pub use sequence::{SequenceTracker, Step, fingerprint};
