//! Reading of words eight, four, and up to three bytes at a time.

/// Returns the four bytes from `from` on, which must exist.
pub(super) fn four(bytes: &[u8], from: usize) -> u64 {
    let chunk = bytes[from..].first_chunk().expect("as long as that");
    u32::from_le_bytes(*chunk).into()
}

/// Returns the eight bytes from `from` on, which must exist.
pub(super) fn eight(bytes: &[u8], from: usize) -> u64 {
    u64::from_le_bytes(*bytes[from..].first_chunk().expect("as long as that"))
}

/// Returns one to three bytes.
pub(super) fn up_to_three(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let ends = [bytes[0], bytes[length / 2], bytes[length - 1]];
    u64::from(u32::from_le_bytes([ends[0], ends[1], ends[2], 0]))
}
