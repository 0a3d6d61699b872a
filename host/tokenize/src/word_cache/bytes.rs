//! Reading of words eight and four bytes at a time.

/// Returns the four bytes from `from` on, which must exist.
pub(super) fn four(bytes: &[u8], from: usize) -> u64 {
    let chunk = bytes[from..].first_chunk().expect("as long as that");
    u32::from_le_bytes(*chunk).into()
}

/// Returns the eight bytes from `from` on, which must exist.
pub(super) fn eight(bytes: &[u8], from: usize) -> u64 {
    u64::from_le_bytes(*bytes[from..].first_chunk().expect("as long as that"))
}
