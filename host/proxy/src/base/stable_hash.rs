//! Hash that is the same in every process and version.

/// Returns the FNV-1a hash, 64 bits. The hash is the same in every process and version, which policies may rely on.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes
        .iter()
        .fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(stable_hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
