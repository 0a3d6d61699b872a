//! Source of trace and span ids: a random key of the process, mixed with the number of a request.

use crate::context::{SpanId, TraceId};

/// Odd constant of the golden ratio, as in splitmix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Source of ids. It takes no lock and shares no counter: ids derive from the request's own number.
#[derive(Clone, Copy)]
pub struct IdSource {
    key: [u64; 2],
}

impl IdSource {
    /// Makes a source. The key is random, so that no other process makes the same ids.
    #[must_use]
    pub fn new(key: [u64; 2]) -> Self {
        Self { key }
    }

    /// Returns the trace id of a request that begins a trace.
    #[must_use]
    pub fn trace(&self, seq: u64) -> TraceId {
        let high = mix(self.key[0] ^ seq.wrapping_mul(GOLDEN));
        let low = mix(self.key[1].wrapping_add(high) ^ seq);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.max(1).to_be_bytes());
        TraceId::new(bytes).expect("its lower half is not zero")
    }

    /// Returns the id of a request's span with that number.
    #[must_use]
    pub fn span(&self, seq: u64, number: u64) -> SpanId {
        let start = mix(self.key[1] ^ seq.wrapping_mul(GOLDEN).rotate_left(32));
        let id = mix(start.wrapping_add(number.wrapping_mul(GOLDEN)) ^ self.key[0]);
        SpanId::new(id.max(1).to_be_bytes()).expect("it is not zero")
    }
}

impl std::fmt::Debug for IdSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdSource").finish_non_exhaustive()
    }
}

/// Returns the id of a span within the process, below a request's own.
pub(crate) fn inner_span(request: SpanId, number: u64) -> SpanId {
    let id = mix(u64::from_be_bytes(request.bytes()) ^ (number + 1).wrapping_mul(GOLDEN));
    SpanId::new(id.max(1).to_be_bytes()).expect("it is not zero")
}

/// Finaliser of splitmix64: maps neighbouring numbers to unrelated ones.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_of_requests_spans_and_processes_differ() {
        let sources = [IdSource::new([1, 2]), IdSource::new([2, 1])];
        let traces: HashSet<_> = sources
            .iter()
            .flat_map(|source| (0..1_000).map(|seq| source.trace(seq)))
            .collect();
        assert_eq!(traces.len(), 2_000);
        let spans: HashSet<_> = sources
            .iter()
            .flat_map(|source| {
                (0..1_000).flat_map(move |seq| (0..8).map(move |number| source.span(seq, number)))
            })
            .collect();
        assert_eq!(spans.len(), 16_000);
    }

    #[test]
    fn the_randomness_of_ids_is_spread_evenly() {
        let source = IdSource::new([7, 9]);
        let half = 1 << 55;
        let above = (0..10_000).filter(|seq| source.trace(*seq).randomness() >= half);
        let above = above.count();
        assert!((4_700..5_300).contains(&above), "{above}");
    }
}
