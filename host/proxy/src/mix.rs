//! Numbers that follow each other become numbers that have nothing to do with each other: whatever takes a share of the
//! requests takes it by one of these.

/// SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014): every bit of the result depends on every bit.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
