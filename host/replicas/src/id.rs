//! Identities that are the same in every router: of routers, workers and pools.

use std::fmt;

use routing::hash_mix;

/// Identity of one run of a router. Drawn at start, so a restarted router is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouterId(pub u64);

/// Identity of a worker: a hash of its pool, URL and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerKey(pub u64);

/// Identity of a pool: a hash of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey(pub u64);

/// Identity of an event feed: a hash of its worker's name, its endpoint, topic and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FeedKey(pub u64);

impl FeedKey {
    /// Returns the key of a feed.
    #[must_use]
    pub fn of(worker: &str, endpoint: &str, topic: &str, rank: Option<u16>) -> Self {
        let texts = [worker, endpoint, topic].into_iter().fold(FNV_START, text_hash);
        let rank = rank.map_or(u64::MAX, u64::from);
        Self(hash_mix(texts ^ hash_mix(rank)))
    }
}

impl WorkerKey {
    /// Returns the key of a worker.
    #[must_use]
    pub fn of(pool: &str, url: &str, rank: Option<u16>) -> Self {
        let rank = rank.map_or(u64::MAX, u64::from);
        let hash = text_hash(text_hash(FNV_START, pool), url);
        Self(hash_mix(hash ^ hash_mix(rank)))
    }
}

impl PoolKey {
    /// Returns the key of a pool.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(text_key(name))
    }
}

impl RouterId {
    /// Reads an id as [`Display`](fmt::Display) writes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex
            .then(|| u64::from_str_radix(text, 16).ok().map(Self))
            .flatten()
    }
}

impl fmt::Display for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Returns the hash of a name that all routers have.
pub(crate) fn text_key(text: &str) -> u64 {
    hash_mix(text_hash(FNV_START, text))
}

/// Continues an FNV-1a hash with a text and its end.
fn text_hash(hash: u64, text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    step(text.bytes().fold(hash, step), 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_pool_url_and_rank_and_by_nothing_else() {
        let key = WorkerKey::of("main", "http://a:1", None);
        assert_eq!(key, WorkerKey::of("main", "http://a:1", None));
        for other in [
            WorkerKey::of("main", "http://a:1", Some(0)),
            WorkerKey::of("main", "http://a:2", None),
            WorkerKey::of("mainh", "ttp://a:1", None),
        ] {
            assert_ne!(key, other);
        }
        assert_ne!(PoolKey::of("a"), PoolKey::of("b"));
    }

    #[test]
    fn an_id_is_read_back_from_its_text() {
        let id = RouterId(0x00ab_cdef_0123_4567);
        assert_eq!(id.to_string(), "00abcdef01234567");
        assert_eq!(RouterId::parse(&id.to_string()), Some(id));
        for wrong in ["", "abc", "+0abcdef01234567", "zzabcdef01234567"] {
            assert_eq!(RouterId::parse(wrong), None, "{wrong}");
        }
    }
}
