//! Receiving side of a transfer: its parts in order.

use super::{FleetHashes, TransferError, TransferId, TransferPart, TransferRequest};

/// A transfer that is being received.
#[derive(Debug)]
pub struct TransferReceiver {
    id: TransferId,
    hashes: FleetHashes,
    known_from: Option<u64>,
    parts: Option<u32>,
    next: u32,
    bytes: Vec<u8>,
}

/// Result of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceivedPart {
    /// A repetition, or a part of another transfer.
    Ignored,
    /// The next part is to be requested.
    Next,
    /// All parts, as the bytes of the contents.
    All(Vec<u8>),
}

impl TransferReceiver {
    /// Returns a transfer without parts.
    #[must_use]
    pub fn new(id: TransferId, hashes: FleetHashes, known_from: Option<u64>) -> Self {
        Self {
            id,
            hashes,
            known_from,
            parts: None,
            next: 0,
            bytes: Vec::new(),
        }
    }

    /// Returns the identity.
    #[must_use]
    pub fn id(&self) -> TransferId {
        self.id
    }

    /// Returns the request for the next part.
    #[must_use]
    pub fn request(&self) -> TransferRequest {
        TransferRequest {
            id: self.id,
            hashes: self.hashes,
            known_from: self.known_from,
            part: self.next,
        }
    }

    /// Adds a part.
    ///
    /// # Errors
    /// [`TransferError::Part`] if it does not fit to those before.
    pub fn receive(&mut self, part: TransferPart) -> Result<ReceivedPart, TransferError> {
        if part.id != self.id || part.part < self.next {
            return Ok(ReceivedPart::Ignored);
        }
        let parts = *self.parts.get_or_insert(part.parts);
        if part.part > self.next || part.parts != parts || part.bytes.is_empty() {
            return Err(TransferError::Part);
        }
        self.bytes.extend(part.bytes);
        self.next += 1;
        if self.next == parts {
            return Ok(ReceivedPart::All(std::mem::take(&mut self.bytes)));
        }
        Ok(ReceivedPart::Next)
    }
}
