//! Rolling hash of Mooncake's RFC 1527: it depends only on tokens, so any program can compute it.
//!
//! `local_i = XXH3-64(tokens as u32 LE, seed)`, `seq_0 = local_0`, `seq_i = XXH3-64(seq_{i-1} LE || local_i LE,
//! seed)`.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Default seed (Dynamo's).
pub const RFC_1527_SEED: u64 = 1337;

/// Returns the sequence hash of each complete block; empty if `block_size` is 0.
#[must_use]
pub fn sequence_hashes(tokens: &[u32], block_size: usize, seed: u64) -> Vec<u64> {
    if block_size == 0 {
        return Vec::new();
    }
    let mut bytes = Vec::with_capacity(block_size * 4);
    let mut previous = None;
    let next = |block: &[u32]| {
        bytes.clear();
        bytes.extend(block.iter().flat_map(|token| token.to_le_bytes()));
        let local = xxh3_64_with_seed(&bytes, seed);
        let hash = previous.map_or(local, |parent| xxh3_64_with_seed(&two_words(parent, local), seed));
        previous = Some(hash);
        hash
    };
    tokens.chunks_exact(block_size).map(next).collect()
}

fn two_words(first: u64, second: u64) -> [u8; 16] {
    (u128::from(first) | u128::from(second) << 64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_local_hashes_from_the_second_block_on() {
        let tokens: Vec<u32> = (0..9).collect();
        let hashes = sequence_hashes(&tokens, 4, RFC_1527_SEED);
        let bytes = |tokens: &[u32]| -> Vec<u8> { tokens.iter().flat_map(|t| t.to_le_bytes()).collect() };
        let local = |tokens| xxh3_64_with_seed(&bytes(tokens), RFC_1527_SEED);
        let mut chained = local(&[0, 1, 2, 3]).to_le_bytes().to_vec();
        chained.extend(local(&[4, 5, 6, 7]).to_le_bytes());
        assert_eq!(
            hashes,
            [local(&[0, 1, 2, 3]), xxh3_64_with_seed(&chained, RFC_1527_SEED)]
        );
    }

    #[test]
    fn has_nothing_for_partial_blocks_and_no_block_size() {
        assert_eq!(sequence_hashes(&[1, 2, 3], 4, RFC_1527_SEED), []);
        assert_eq!(sequence_hashes(&[1, 2, 3], 0, RFC_1527_SEED), []);
    }

    #[test]
    fn the_seed_is_part_of_every_hash() {
        let [one, other] = [RFC_1527_SEED, 0].map(|seed| sequence_hashes(&[1, 2, 3, 4], 2, seed));
        assert!(one.iter().zip(&other).all(|(one, other)| one != other));
    }
}
