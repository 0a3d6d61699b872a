//! Assignment of sessions to arms by hash.

use routing::hash_mix;

/// Unit of arm shares: all shares of a route add up to this number.
pub const ARM_SHARES: u32 = 10_000;
/// Number of session groups within an arm, the samples' clusters.
const SESSION_GROUPS: u64 = 64;

/// Arm and session group of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// Index of the arm. The control is 0.
    pub arm: usize,
    /// Session group, below 64.
    pub group: u8,
}

/// Assigns a session, or a request without one, by its key.
///
/// `salt` differs between routes, so that the same sessions are not always in a canary. The canaries take the buckets
/// from 0 in order of `shares`, and the control takes the rest. Raising the last share therefore only moves sessions
/// into that canary.
#[must_use]
pub fn assign(key: u64, salt: u64, shares: impl IntoIterator<Item = u32>) -> Assignment {
    let mixed = hash_mix(key ^ salt);
    let bucket = ((mixed >> 32) * u64::from(ARM_SHARES)) >> 32;
    let mut end = 0;
    let canary = shares.into_iter().position(|share| {
        end += u64::from(share);
        bucket < end
    });
    Assignment {
        arm: canary.map_or(0, |canary| canary + 1),
        group: (mixed % SESSION_GROUPS) as u8,
    }
}
