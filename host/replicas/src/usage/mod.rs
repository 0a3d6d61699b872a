//! Usage that routers share: consumption against the limits of clients, and the service of tenants.
//!
//! A counter has an absolute total that only its router changes. Receivers take the difference to the total that they
//! knew, so a lost, late or repeated message changes nothing once a later one has come. A total whose beginning the
//! receiver did not see is no evidence of recent use: then the counter's level is taken over instead. The same holds
//! for a total whose growth took longer than the time between two messages, or that comes late.

mod message;
mod peers;
mod publisher;
mod succession;

use crate::id::text_key;

pub use message::{MOST_USAGE_ROWS, UsageMessage, UsageRow, UsageValue};
pub use peers::{UsageChange, UsageChanges, UsagePeers};
pub use publisher::{UsagePublisher, UsageReading};
pub use succession::SuccessionSpec;

/// Identity of a counter or gauge: its group and its name there, both hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UsageKey {
    /// Group, such as the limits of clients or the tenants of a pool.
    pub group: u64,
    /// Counter or gauge of the group.
    pub name: u64,
}

impl UsageKey {
    /// Returns the hash of a group's or a counter's name.
    #[must_use]
    pub fn hash(name: &str) -> u64 {
        text_key(name)
    }

    /// Returns the hash of one of the counters that belong to a name.
    #[must_use]
    pub fn part_hash(name: &str, part: u8) -> u64 {
        routing::hash_mix(text_key(name) ^ u64::from(part))
    }
}
