//! The payload of a message, with the memory that it is charged for.

use std::ops::Deref;

use crate::link::{Charge, Received};

/// What is decoded. Dropping it gives its memory back to the feeds.
#[derive(Debug)]
pub(crate) struct Payload {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl Payload {
    /// The last frame of a message; none of a message without frames.
    pub(crate) fn of(received: Received) -> Option<Self> {
        let Received { mut frames, charge } = received;
        let bytes = frames.pop()?;
        Some(Self {
            bytes,
            _charge: charge,
        })
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
