//! Heavy hitters: the most frequent keys of a stream, counted in bounded memory.
//!
//! Misra-Gries summary (1982); Boyer and Moore's majority vote is its case of one counter.
//!
//! A count is never too high. It is too low by at most the number of infrequent keys divided by [`ROOM`]. An
//! infrequent key is therefore never reported as frequent.

/// Maximum number of counted keys.
const ROOM: usize = 128;
/// Number of requests after which all counts are halved, so that old keys are forgotten.
const WINDOW: u32 = 4_096;
/// Encoded bytes of a key and its count.
const WIDTH: usize = 12;
/// Encoded bytes of the number of requests.
const HEAD: usize = 4;

/// Counts of the most frequent keys.
#[derive(Debug, Default)]
pub(crate) struct HeavyHitters {
    requests: u32,
    counts: Vec<(u64, u32)>,
}

impl HeavyHitters {
    /// Decodes the output of [`HeavyHitters::bytes`]; any other input yields no counts.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let Some((requests, counts)) = bytes.split_first_chunk::<HEAD>() else {
            return Self::default();
        };
        let count = |entry: &[u8]| {
            let (key, count) = entry.split_first_chunk()?;
            Some((
                u64::from_le_bytes(*key),
                u32::from_le_bytes(count.try_into().ok()?),
            ))
        };
        Self {
            requests: u32::from_le_bytes(*requests),
            counts: counts.chunks_exact(WIDTH).take(ROOM).filter_map(count).collect(),
        }
    }

    /// Encodes the counts for the shared state.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.counts.len() * WIDTH);
        bytes.extend(self.requests.to_le_bytes());
        for (key, count) in &self.counts {
            bytes.extend(key.to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
        bytes
    }

    /// Counts a request and returns the number of counted requests.
    pub(crate) fn request(&mut self) -> u32 {
        if self.requests >= WINDOW {
            self.requests /= 2;
            self.counts.retain_mut(|(_, count)| {
                *count /= 2;
                *count > 0
            });
        }
        self.requests += 1;
        self.requests
    }

    /// Counts a key of the request and returns its count.
    pub(crate) fn note(&mut self, key: u64) -> u32 {
        if let Some((_, count)) = self.counts.iter_mut().find(|(known, _)| *known == key) {
            *count = count.saturating_add(1);
            return *count;
        }
        if self.counts.len() < ROOM {
            self.counts.push((key, 1));
            return 1;
        }
        self.counts.retain_mut(|(_, count)| {
            *count = count.saturating_sub(1);
            *count > 0
        });
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_never_too_high_and_falls_short_by_little() {
        let mut frequent = HeavyHitters::default();
        let (mut common, mut count) = (0, 0);
        for request in 0..4_000_u64 {
            frequent.request();
            if request % 20 == 0 {
                common += 1;
                count = frequent.note(u64::MAX);
            } else {
                assert!(frequent.note(request) <= 1, "each key occurs once");
            }
        }
        assert_eq!(common, 200);
        assert!((170..=200).contains(&count), "{count}");
    }

    #[test]
    fn old_frequent_keys_are_forgotten_and_memory_is_bounded() {
        let mut frequent = HeavyHitters::default();
        for request in 0..100_000_u64 {
            let requests = frequent.request();
            assert!(requests <= WINDOW);
            let known = if request < 10_000 { 1 } else { 2 };
            assert!(frequent.note(known) <= requests);
            frequent.note(request + 100);
        }
        assert!(frequent.bytes().len() <= HEAD + ROOM * WIDTH);
        assert!(frequent.note(1) <= 1);
        assert!(frequent.note(2) > WINDOW / 3);
    }

    #[test]
    fn encoded_counts_are_decoded_and_invalid_bytes_yield_none() {
        let mut frequent = HeavyHitters::default();
        for key in [3, 1, 3, 3] {
            frequent.request();
            frequent.note(key);
        }
        let kept = frequent.bytes();
        let mut read = HeavyHitters::read(&kept);
        assert_eq!(read.bytes(), kept);
        assert_eq!((read.request(), read.note(3), read.note(1)), (5, 4, 2));
        for nonsense in [&b""[..], b"abc", &[0; 9]] {
            assert_eq!(HeavyHitters::read(nonsense).note(1), 1);
        }
        assert_eq!(HeavyHitters::read(&vec![1; 100_000]).counts.len(), ROOM);
    }
}
