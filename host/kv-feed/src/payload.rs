//! Payload of a message, with the memory it is charged for.

use std::ops::Deref;

use crate::link::{MemoryCharge, ReceivedMessage};

/// Bytes to decode. Dropping it releases its memory.
#[derive(Debug)]
pub(crate) struct ChargedPayload {
    bytes: Vec<u8>,
    _charge: MemoryCharge,
}

impl ChargedPayload {
    /// Returns the last frame of a message; `None` if it has no frames.
    pub(crate) fn of(received: ReceivedMessage) -> Option<Self> {
        let ReceivedMessage { mut frames, charge } = received;
        let bytes = frames.pop()?;
        Some(Self {
            bytes,
            _charge: charge,
        })
    }
}

impl Deref for ChargedPayload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
