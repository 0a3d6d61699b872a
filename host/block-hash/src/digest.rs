//! Block digest: the parent of the next block in the chain.

use std::fmt;

/// 32 bytes of SHA-256 or 16 of XXH3-128.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    /// A 16-byte digest is followed by zeros.
    bytes: [u8; 32],
    short: bool,
}

impl Digest {
    pub(crate) fn of_32(bytes: [u8; 32]) -> Self {
        Self { bytes, short: false }
    }

    pub(crate) fn of_16(half: [u8; 16]) -> Self {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&half);
        Self { bytes, short: true }
    }

    /// Returns the digest in its chained form.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        if self.short {
            &self.bytes[..16]
        } else {
            &self.bytes
        }
    }

    /// Returns the integer form of a block's hash that engines publish: the last 8 bytes, big endian ("low64_be").
    #[must_use]
    pub fn low64(&self) -> u64 {
        let last = if self.short { 8 } else { 24 };
        let mut low = [0; 8];
        low.copy_from_slice(&self.bytes[last..last + 8]);
        u64::from_be_bytes(low)
    }
}

/// Lower-case hexadecimal.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}
