//! Hash table by numbers that this process gives out. No client chooses them, so that their hash needs no secret.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::random::hash_mix;

/// Table by numbers of the process.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Hash function of numbers.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = hash_mix(self.0 ^ number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::WorkerId;

    #[test]
    fn numbers_are_found_under_their_own_key() {
        let mut map = NumberMap::default();
        for number in 0..1_000 {
            map.insert(WorkerId(number), number);
        }
        assert!((0..1_000).all(|number| map.get(&WorkerId(number)) == Some(&number)));
        assert_eq!(map.get(&WorkerId(1_000)), None);
    }
}
