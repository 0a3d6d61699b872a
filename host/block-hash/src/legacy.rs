//! Legacy chain of Mooncake's first conductors (January to July 2026): `h_i = XXH64(h_{i-1} as 8 bytes LE || tokens as
//! u32 LE)`. Only for comparisons with them: no engine publishes these.

use xxhash_rust::xxh64::xxh64;

/// A variant of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyChain {
    /// XXH64's own seed.
    seed: u64,
    /// Parent of the first block.
    root: u64,
}

impl LegacyChain {
    /// Returns the first generation: one number is both the hash's seed and the first parent (`CONDUCTOR_SEED`).
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { seed, root: seed }
    }

    /// Returns the second generation: no seed, and a first parent made of the additional salt.
    #[must_use]
    pub fn salted(salt: &str) -> Self {
        Self {
            seed: 0,
            root: xxh64(salt.as_bytes(), 0),
        }
    }

    /// Returns the first block's parent.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Returns the hash of one block after `parent`.
    #[must_use]
    pub fn block(&self, parent: u64, tokens: &[u32]) -> u64 {
        let mut bytes = Vec::with_capacity(8 + tokens.len() * 4);
        bytes.extend_from_slice(&parent.to_le_bytes());
        bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
        xxh64(&bytes, self.seed)
    }

    /// Returns the hash of each complete block; empty if `block_size` is 0.
    #[must_use]
    pub fn hashes(&self, tokens: &[u32], block_size: usize) -> Vec<u64> {
        if block_size == 0 {
            return Vec::new();
        }
        let next = |parent: &mut u64, block| {
            *parent = self.block(*parent, block);
            Some(*parent)
        };
        tokens.chunks_exact(block_size).scan(self.root, next).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// XXH64 of nothing and of `a`, from the xxHash specification's test vectors.
    #[test]
    fn a_salt_is_hashed_to_the_first_parent() {
        assert_eq!(LegacyChain::salted("").root(), 0xef46_db37_51d8_e999);
        assert_eq!(LegacyChain::salted("a").root(), 0xd24e_c4f1_a98c_6e5b);
    }

    #[test]
    fn generations_differ_in_seed_and_root() {
        let tokens = [1, 2, 3, 4];
        let first = LegacyChain::seeded(7);
        assert_eq!(first.root(), 7);
        assert_eq!(first.hashes(&tokens, 4), [first.block(7, &tokens)]);
        assert_ne!(
            first.hashes(&tokens, 4),
            LegacyChain::salted("").hashes(&tokens, 4)
        );
        assert_eq!(first.hashes(&tokens, 0), []);
    }
}
