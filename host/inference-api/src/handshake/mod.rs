//! Prefill/decode handshakes: the bodies of a request's two legs, for every dialect.
//!
//! A leg's body is the client's with a few members of its top-level object replaced, added or dropped. All other bytes
//! are unchanged, including whitespace and order. The proxy decides where and when each leg is sent.
//!
//! Sources: vLLM 0.32 (`NixlConnector`, `MooncakeConnector`, run) and SGLang 0.5.23 (`mini_lb`, `io_struct.py`, read).

mod answer;
mod legs;
mod members;
mod splits;

use bytes::Bytes;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::endpoint::Endpoint;
use members::BodyMembers;

pub use answer::{PrefillAnswer, PrefillAnswerError};
pub use splits::splits;

/// The body cannot be split into legs.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// Not a JSON object.
    #[error("read the request body as a JSON object")]
    Invalid {
        /// Never quotes the prompt.
        #[source]
        source: serde_json::Error,
    },
    /// The body has a member that only a router writes: a leg that no router has placed.
    #[error("accept a request with `{member}`, which only a router may set")]
    Forged {
        /// The member's name.
        member: &'static str,
    },
    /// The body repeats such members too often.
    #[error("accept a request with more than {most} members that a handshake touches")]
    Crowded {
        /// The maximum.
        most: usize,
    },
}

/// A request's body with the positions of changeable members. Created once for all attempts.
#[derive(Debug, Clone)]
pub struct Split {
    body: Bytes,
    endpoint: Endpoint,
    members: BodyMembers,
}

/// Handshake parameters: data that each leg sends to its engine about the other.
#[derive(Debug, Clone, Copy)]
pub enum Handshake<'a> {
    /// vLLM's `NixlConnector`.
    Nixl {
        /// `kv_transfer_params` of the prefill leg's answer, unchanged. The prefill leg needs none. A decode leg
        /// without them is the client's own body: the engine then computes the prompt itself.
        params: Option<&'a RawValue>,
    },
    /// vLLM's `MooncakeConnector`.
    Mooncake {
        /// New for every attempt.
        transfer_id: &'a str,
        /// Bootstrap server of the prefill worker, as `http://host:port`.
        bootstrap: &'a str,
        /// Engine id of the prefill worker's rank that the leg is pinned to.
        engine_id: &'a str,
    },
    /// A store shared by both sides.
    Store,
    /// SGLang.
    Sglang {
        /// Host of the prefill worker's bootstrap server.
        host: &'a str,
        /// Port; `None` for SGLang's default.
        port: Option<u16>,
        /// 63 bits, new for every attempt. Further prompts of a batch take the following numbers.
        room: u64,
        /// Data-parallel rank that the prefill leg is pinned to.
        prefill_rank: Option<u16>,
        /// Data-parallel rank that the decode leg is pinned to.
        decode_rank: Option<u16>,
    },
}

impl Split {
    /// Finds the members in one pass that skips their values.
    ///
    /// # Errors
    /// [`HandshakeError`] if the body is not a JSON object, or already has a handshake's members. It therefore also
    /// protects unsplit requests from forged legs.
    pub fn read(endpoint: Endpoint, body: &Bytes) -> Result<Self, HandshakeError> {
        Ok(Self {
            body: body.clone(),
            endpoint,
            members: BodyMembers::find(body)?,
        })
    }

    /// Returns the body of the prefill leg.
    #[must_use]
    pub fn prefill(&self, handshake: &Handshake<'_>) -> Bytes {
        self.members.edit(&self.body, &legs::prefill(self, handshake))
    }

    /// Returns the body of the decode leg; the client's own `Bytes`, uncopied, if the dialect adds nothing.
    #[must_use]
    pub fn decode(&self, handshake: &Handshake<'_>) -> Bytes {
        self.members.edit(&self.body, &legs::decode(self, handshake))
    }
}
