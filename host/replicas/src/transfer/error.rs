//! Version of the messages of transfers, and errors of their reading.

use thiserror::Error;

/// Version of the messages and of the contents.
pub(super) const VERSION: u8 = 1;

/// Error of a message of a transfer.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum TransferError {
    /// Another version.
    #[error("the message has version {0}, and this router reads version {VERSION}")]
    Version(u8),
    /// Bytes that are not a message or contents.
    #[error("the message is not readable")]
    Unreadable,
    /// A part that does not fit to those before.
    #[error("the part does not fit to the parts before it")]
    Part,
}
