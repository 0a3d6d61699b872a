//! Hash for stable choices among candidates.

/// Mixes two numbers into 64 evenly distributed bits. The function never changes and is the same on every
/// machine. It is not cryptographic.
///
/// `mix(session, worker)` ranks workers for a session (rendezvous hashing, Thaler and Ravishankar 1998): a
/// worker that joins or leaves moves only its own sessions. The finaliser is SplitMix64's (Steele, Lea and
/// Flood 2014).
#[must_use]
pub fn mix(a: u64, b: u64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut bits = a ^ b.wrapping_add(1).wrapping_mul(GOLDEN);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_neighbours_evenly_over_workers() {
        let mut counts = [0_u32; 8];
        for session in 0..8_000 {
            let home = (0..8_usize).max_by_key(|&worker| mix(session, worker as u64));
            counts[home.unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| (900..1_100).contains(count)),
            "{counts:?}"
        );
    }
}
