//! Which keys many requests have, counted in bounded room: Misra and Gries's summary (1982), of which Boyer and Moore's majority vote is
//! the case of one counter.
//!
//! A key's count falls short of the truth by at most one in [`ROOM`] of the keys that are not frequent, and is never too high; so a key
//! that too few have is never taken for a frequent one.

/// Keys that are counted at a time.
const ROOM: usize = 128;
/// After so many requests all counts are halved: what was frequent long ago is forgotten.
const WINDOW: u32 = 4_096;
/// Bytes of a key and its count.
const WIDTH: usize = 12;
/// Bytes of the number of requests.
const HEAD: usize = 4;

/// Counts of keys.
#[derive(Debug, Default)]
pub(crate) struct Frequent {
    requests: u32,
    counts: Vec<(u64, u32)>,
}

impl Frequent {
    /// As [`Frequent::bytes`] wrote it; whatever else reads as no counts.
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

    /// To be kept.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.counts.len() * WIDTH);
        bytes.extend(self.requests.to_le_bytes());
        for (key, count) in &self.counts {
            bytes.extend(key.to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
        bytes
    }

    /// Counts a request, and gives how many the counts are of.
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

    /// Counts a key of the request, and gives its count.
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
        let mut frequent = Frequent::default();
        let (mut common, mut told) = (0, 0);
        for request in 0..4_000_u64 {
            frequent.request();
            if request % 20 == 0 {
                common += 1;
                told = frequent.note(u64::MAX);
            } else {
                assert!(frequent.note(request) <= 1, "each is there once");
            }
        }
        assert_eq!(common, 200);
        assert!((170..=200).contains(&told), "{told}");
    }

    #[test]
    fn what_was_frequent_is_forgotten_and_nothing_grows() {
        let mut frequent = Frequent::default();
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
    fn what_is_kept_is_read_again_and_nonsense_as_nothing() {
        let mut frequent = Frequent::default();
        for key in [3, 1, 3, 3] {
            frequent.request();
            frequent.note(key);
        }
        let kept = frequent.bytes();
        let mut read = Frequent::read(&kept);
        assert_eq!(read.bytes(), kept);
        assert_eq!((read.request(), read.note(3), read.note(1)), (5, 4, 2));
        for nonsense in [&b""[..], b"abc", &[0; 9]] {
            assert_eq!(Frequent::read(nonsense).note(1), 1);
        }
        assert_eq!(Frequent::read(&vec![1; 100_000]).counts.len(), ROOM);
    }
}
