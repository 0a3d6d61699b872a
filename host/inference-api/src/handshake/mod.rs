//! What prefill/decode disaggregation writes into a request: the bodies of its two legs, for every dialect.
//!
//! A leg's body is the client's with a few members of its top-level object replaced, added or dropped; every other
//! byte is the client's, whitespace and order included. Which leg goes where, and when, is the proxy's affair.
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
use members::Members;

pub use answer::{PrefillAnswer, PrefillAnswerError};
pub use splits::splits;

/// The body cannot be made into legs.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// Not a JSON object.
    #[error("read the request body as a JSON object")]
    Invalid {
        /// Never quotes the prompt.
        #[source]
        source: serde_json::Error,
    },
    /// It already has a member that only a router writes: a leg that nobody has placed.
    #[error("accept a request with `{member}`, which only a router may set")]
    Forged {
        /// The member's name.
        member: &'static str,
    },
    /// It repeats such members without end.
    #[error("accept a request with more than {most} members that a handshake touches")]
    Crowded {
        /// Most that may be.
        most: usize,
    },
}

/// A request's body with the places of the members that handshakes touch. Made once, whatever the tries.
#[derive(Debug, Clone)]
pub struct Split {
    body: Bytes,
    endpoint: Endpoint,
    members: Members,
}

/// What the two legs of a request tell their engines of each other.
#[derive(Debug, Clone, Copy)]
pub enum Handshake<'a> {
    /// vLLM's `NixlConnector`.
    Nixl {
        /// `kv_transfer_params` of the prefill leg's answer, passed on as it is. The prefill leg needs none. A decode
        /// leg without them is the client's own body: the engine then computes the prompt itself.
        params: Option<&'a RawValue>,
    },
    /// vLLM's `MooncakeConnector`.
    Mooncake {
        /// New for every try.
        transfer_id: &'a str,
        /// The prefill worker's bootstrap server, as `http://host:port`.
        bootstrap: &'a str,
        /// The prefill worker's engine id, of the rank the leg is pinned to.
        engine_id: &'a str,
    },
    /// A store that both sides know.
    Store,
    /// SGLang.
    Sglang {
        /// The prefill worker's bootstrap server.
        host: &'a str,
        /// Its port; without one SGLang's own default counts.
        port: Option<u16>,
        /// Of 63 bits, new for every try. A batch's further prompts take the numbers after it.
        room: u64,
        /// The data-parallel rank the prefill leg is pinned to.
        prefill_rank: Option<u16>,
        /// The data-parallel rank the decode leg is pinned to.
        decode_rank: Option<u16>,
    },
}

impl Split {
    /// Finds the members in one pass that skips their values.
    ///
    /// # Errors
    /// [`HandshakeError`] when the body is no JSON object, or has a handshake's members already. So it also is the check for requests that are not split: no client may forge a leg.
    pub fn read(endpoint: Endpoint, body: &Bytes) -> Result<Self, HandshakeError> {
        Ok(Self {
            body: body.clone(),
            endpoint,
            members: Members::find(body)?,
        })
    }

    /// The body of the prefill leg.
    #[must_use]
    pub fn prefill(&self, handshake: &Handshake<'_>) -> Bytes {
        self.members.edit(&self.body, &legs::prefill(self, handshake))
    }

    /// The body of the decode leg. The same `Bytes` as the client's, uncopied, where the dialect adds nothing.
    #[must_use]
    pub fn decode(&self, handshake: &Handshake<'_>) -> Bytes {
        self.members.edit(&self.body, &legs::decode(self, handshake))
    }
}
