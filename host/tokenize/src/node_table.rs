//! Table of token nodes: least recently used first out, within a limit of bytes.
//!
//! Each prefix of a text that ends at a cut is a node: the tokens of its last piece, and a link to the node before.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lru::LruCache;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::conversation::StateEnd;
use crate::kept_hashes::NodeHashes;

/// Number of shards, so that few requests contend for one lock. Each lock is held for one lookup.
const SHARDS: usize = 16;
/// Most entries that one addition evicts. Above one, since an entry with successors frees nothing yet.
const MOST_EVICTED: usize = 64;
/// Overhead of a node in bytes: itself, its entry, the allocator's.
const NODE_BYTES: usize = 280;

/// Nodes of all models of a router.
#[derive(Debug)]
pub(crate) struct NodeTable {
    shards: Box<[Mutex<CacheShard>]>,
    /// Bytes of live nodes, in the cache or in use.
    bytes: Arc<AtomicUsize>,
    limit: AtomicUsize,
    /// Random per process, so that hash collisions cannot be prepared.
    seed: u64,
}

/// Nodes by hash.
type CacheShard = LruCache<u64, Arc<Node>>;

/// Tokens of a text up to a cut.
#[derive(Debug)]
pub(crate) struct Node {
    before: Option<Arc<Self>>,
    model: u64,
    text: Box<str>,
    tokens: Box<[u32]>,
    /// Number of tokens up to here, including earlier nodes.
    pub(crate) count: usize,
    /// Set for the state of a conversation.
    end: Option<StateEnd>,
    /// Hashes of the blocks up to here, as far as the caller kept them.
    hashes: OnceLock<Box<NodeHashes>>,
    all: Arc<AtomicUsize>,
}

/// Node to be added.
pub(crate) struct NewNode<'a> {
    pub(crate) before: Option<Arc<Node>>,
    pub(crate) text: &'a str,
    pub(crate) tokens: &'a [u32],
}

/// Splits the key of a conversation into the parts that its node has.
fn halves(key: u128) -> (u64, u64) {
    ((key >> 64) as u64, key as u64)
}

impl NodeTable {
    /// Creates a table of at most `limit` bytes; with 0 it stores nothing.
    pub(crate) fn new(limit: usize) -> Self {
        let shard = |_| Mutex::new(LruCache::unbounded_with_hasher(RandomState::new()));
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            bytes: Arc::default(),
            limit: AtomicUsize::new(limit),
            seed: RandomState::new().hash_one(0),
        }
    }

    /// Sets the limit, with immediate effect.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        self.evict(0, usize::MAX);
    }

    /// Returns the limit in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns `true` if nothing may be stored.
    pub(crate) fn is_off(&self) -> bool {
        self.limit() == 0
    }

    /// Returns the used memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the hash of a text that continues with `piece`.
    pub(crate) fn hash(&self, model: u64, before: Option<u64>, piece: &str) -> u64 {
        let seed = before.unwrap_or_else(|| self.seed.wrapping_add(model));
        xxh3_64_with_seed(piece.as_bytes(), seed)
    }

    /// Returns the node of a prefix.
    pub(crate) fn get(&self, model: u64, hash: u64, prefix: &str) -> Option<Arc<Node>> {
        let found = self.shard(hash).get(&hash).cloned()?;
        found.is_of(model, prefix).then_some(found)
    }

    /// Returns the state of the conversation with this key.
    pub(crate) fn state(&self, key: u128) -> Option<Arc<Node>> {
        let (space, hash) = halves(key);
        let found = self.shard(hash).get(&hash).cloned()?;
        (found.model == space && found.end.is_some()).then_some(found)
    }

    /// Adds the state of the conversation with this key.
    pub(crate) fn insert_state(&self, key: u128, state: NewNode<'_>, end: StateEnd) -> Arc<Node> {
        let (space, hash) = halves(key);
        self.add(space, hash, state, Some(end))
    }

    /// Adds the tokens of a prefix's last piece. The returned node is usable even if the cache has no room for it.
    pub(crate) fn insert(&self, model: u64, hash: u64, node: NewNode<'_>) -> Arc<Node> {
        self.add(model, hash, node, None)
    }

    fn add(&self, model: u64, hash: u64, node: NewNode<'_>, end: Option<StateEnd>) -> Arc<Node> {
        let NewNode { before, text, tokens } = node;
        let node = Arc::new(Node {
            model,
            count: tokens.len() + before.as_ref().map_or(0, |before| before.count),
            before,
            text: text.into(),
            tokens: tokens.into(),
            end,
            hashes: OnceLock::new(),
            all: Arc::clone(&self.bytes),
        });
        self.bytes.fetch_add(node.size(), Ordering::Relaxed);
        if self.is_off() {
            return node;
        }
        // Dropped after the lock is released: a whole chain may depend on it.
        let replaced = self.shard(hash).put(hash, Arc::clone(&node));
        drop(replaced);
        self.evict(hash, MOST_EVICTED);
        node
    }

    /// Evicts the least recently used nodes above the limit, at most so many, from the shard of the latest addition on.
    fn evict(&self, from: u64, most: usize) {
        let limit = self.limit.load(Ordering::Relaxed);
        let (mut evicted, mut empty) = (0, 0);
        let mut at = from;
        while self.bytes() > limit && evicted < most && empty < SHARDS {
            match self.evict_one(at, from) {
                Some(node) => {
                    drop(node);
                    (evicted, empty) = (evicted + 1, 0);
                }
                None => empty += 1,
            }
            at = at.wrapping_add(1);
        }
    }

    /// Removes the least recently used entry of a shard. Its memory is free once no successor links to it; a text that
    /// continues from it finds the deepest of them.
    fn evict_one(&self, at: u64, newest: u64) -> Option<Arc<Node>> {
        let mut shard = self.shard(at);
        let (hash, _) = shard.peek_lru()?;
        // The only one of its shard.
        if *hash == newest {
            return None;
        }
        shard.pop_lru().map(|(_, node)| node)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, CacheShard> {
        let shard = &self.shards[hash as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Returns the end of the conversation's text, if this is the state of one.
    pub(crate) fn end(&self) -> Option<(StateEnd, &str)> {
        Some((self.end?, &*self.text))
    }

    /// Returns the node so many before this one.
    pub(crate) fn earlier(&self, steps: usize) -> Option<&Self> {
        let mut node = self;
        for _ in 0..steps {
            node = node.before.as_deref()?;
        }
        Some(node)
    }

    /// Returns this node and those before it, the latest first.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |node| node.before.as_deref())
    }

    /// Returns the hashes that it keeps.
    pub(crate) fn hashes(&self) -> Option<&NodeHashes> {
        self.hashes.get().map(|hashes| &**hashes)
    }

    /// Keeps hashes, unless it has some.
    pub(crate) fn keep(&self, hashes: NodeHashes) {
        let bytes = hashes.bytes();
        if self.hashes.set(Box::new(hashes)).is_ok() {
            self.all.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the memory of all nodes of its table in bytes.
    #[cfg(test)]
    pub(crate) fn all_bytes(&self) -> impl Fn() -> usize + use<> {
        let all = Arc::clone(&self.all);
        move || all.load(Ordering::Relaxed)
    }

    fn size(&self) -> usize {
        let hashes = self.hashes().map_or(0, NodeHashes::bytes);
        NODE_BYTES + self.text.len() + size_of_val(&*self.tokens) + hashes
    }

    /// Returns `true` if this is the node of a text.
    fn is_of(&self, model: u64, prefix: &str) -> bool {
        let mut rest = prefix.as_bytes();
        let mut node = Some(self);
        while let Some(piece) = node {
            match rest.strip_suffix(piece.text.as_bytes()) {
                Some(before) if piece.model == model => rest = before,
                _ => return false,
            }
            node = piece.before.as_deref();
        }
        rest.is_empty()
    }

    /// Appends the tokens of the text up to here.
    pub(crate) fn tokens_into(&self, out: &mut Vec<u32>) {
        self.tokens_from(0, out);
    }

    /// Appends the tokens of the text up to here, without the first `from`.
    pub(crate) fn tokens_from(&self, from: usize, out: &mut Vec<u32>) {
        out.reserve(self.count.saturating_sub(from));
        let nodes: Vec<_> = self.chain().take_while(|node| node.count > from).collect();
        for node in nodes.into_iter().rev() {
            let before = node.count - node.tokens.len();
            out.extend_from_slice(&node.tokens[from.saturating_sub(before)..]);
        }
    }
}

impl Drop for Node {
    /// Drops the chain by iteration: it may be too long for recursive drops.
    fn drop(&mut self) {
        self.all.fetch_sub(self.size(), Ordering::Relaxed);
        let mut before = self.before.take();
        while let Some(mut node) = before.and_then(Arc::into_inner) {
            before = node.before.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(
        cache: &NodeTable,
        before: Option<(u64, Arc<Node>)>,
        text: &str,
        tokens: &[u32],
    ) -> (u64, Arc<Node>) {
        let hash = cache.hash(1, before.as_ref().map(|(hash, _)| *hash), text);
        (
            hash,
            cache.insert(
                1,
                hash,
                NewNode {
                    before: before.map(|(_, node)| node),
                    text,
                    tokens,
                },
            ),
        )
    }

    #[test]
    fn a_prefix_has_the_tokens_of_all_its_pieces() {
        let cache = NodeTable::new(1 << 20);
        let first = keep(&cache, None, "ab", &[1, 2]);
        let (hash, _) = keep(&cache, Some(first), "c", &[3]);
        let node = cache.get(1, hash, "abc").unwrap();
        let mut tokens = vec![9];
        node.tokens_into(&mut tokens);
        assert_eq!(tokens, [9, 1, 2, 3]);
    }

    #[test]
    fn another_text_or_model_of_the_same_hash_is_a_miss() {
        let cache = NodeTable::new(1 << 20);
        let (hash, _) = keep(&cache, None, "ab", &[1, 2]);
        assert!(cache.get(1, hash, "ax").is_none());
        assert!(cache.get(1, hash, "abb").is_none());
        assert!(cache.get(2, hash, "ab").is_none());
        assert!(cache.get(1, hash, "ab").is_some());
    }

    #[test]
    fn memory_stays_within_the_limit_and_the_latest_stays() {
        let limit = 100 * (NODE_BYTES + 20);
        let cache = NodeTable::new(limit);
        let mut last = None;
        for number in 0..10_000 {
            let before = if number % 5 == 0 { None } else { last };
            last = Some(keep(&cache, before, &format!("{number:08}"), &[number, 1, 2]));
            assert!(cache.bytes() <= limit + 5 * (NODE_BYTES + 20));
        }
        let (hash, node) = last.unwrap();
        assert_eq!(node.count, 15);
        drop(node);
        assert!(
            cache
                .get(1, hash, "0000999500009996000099970000999800009999")
                .is_some()
        );
        cache.set_limit(0);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn a_chain_longer_than_the_limit_gives_way_to_others() {
        let limit = 100 * (NODE_BYTES + 20);
        let cache = NodeTable::new(limit);
        let mut last = None;
        for number in 0..2_000 {
            last = Some(keep(&cache, last, &format!("{number:08}"), &[number]));
        }
        assert!(cache.bytes() > 10 * limit, "its end is in use");
        drop(last);
        for number in 0..40 {
            let (hash, node) = keep(&cache, None, &format!("other {number}"), &[number]);
            drop(node);
            assert!(cache.get(1, hash, &format!("other {number}")).is_some());
        }
        assert!(cache.bytes() <= limit);
    }

    #[test]
    fn a_long_chain_is_dropped_without_much_stack() {
        let cache = NodeTable::new(usize::MAX);
        let mut last = None;
        for _ in 0..100_000 {
            last = Some(keep(&cache, last, "x", &[1]));
        }
        let bytes = Arc::clone(&cache.bytes);
        drop(cache);
        drop(last);
        assert_eq!(bytes.load(Ordering::Relaxed), 0);
    }
}
