//! Prompts of token ids: strides of a list that an earlier prompt had are not read again.

use std::sync::Arc;

use crate::cache::TokenizationCache;
use crate::kept_hashes::KnownBeginning;
use crate::node_table::{NewNode, Node};

/// Least length of a stride in bytes. It ends with the next comma.
const STRIDE: usize = 1024;
/// Space of the cache's keys, which no model has.
const SPACE: u64 = u64::MAX;

/// Ids of a list.
#[derive(Debug)]
pub struct ListedIds {
    /// All ids.
    pub ids: Vec<u32>,
    /// Number of ids from the cache.
    pub cached: usize,
    /// The longest beginning that is kept.
    pub beginning: Option<KnownBeginning>,
}

/// End of a stride, and the hash of the list up to it.
#[derive(Debug, Clone, Copy)]
struct StrideEnd {
    at: usize,
    hash: u64,
}

impl TokenizationCache {
    /// Reads a JSON list of ids, without its brackets. `read` reads the ids of a part of it, and returns `None` if one
    /// of them is no id; then there is no result. New strides are kept.
    pub fn read_ids(&self, list: &str, read: impl Fn(&str) -> Option<Vec<u32>>) -> Option<ListedIds> {
        let ends = self.stride_ends(list);
        let known = ends.iter().enumerate().rev().find_map(|(index, end)| {
            let node = self.pieces.get(SPACE, end.hash, &list[..end.at])?;
            Some((index + 1, node))
        });
        let (covered, mut node) = known.map_or((0, None), |(covered, node)| (covered, Some(node)));
        // Most ids have at least four digits.
        let mut ids = Vec::with_capacity(list.len() / 4);
        if let Some(known) = &node {
            known.tokens_into(&mut ids);
        }
        let cached = ids.len();
        let mut from = covered.checked_sub(1).map_or(0, |last| ends[last].at);
        for end in &ends[covered..] {
            let text = &list[from..end.at];
            let tokens = read(text.strip_suffix(',')?)?;
            ids.extend_from_slice(&tokens);
            node = Some(self.keep_stride(node, end.hash, text, &tokens));
            from = end.at;
        }
        ids.extend(read(&list[from..])?);
        Some(ListedIds {
            ids,
            cached,
            beginning: node.map(KnownBeginning),
        })
    }

    /// Returns the ends of the strides; the rest of the list is shorter than one.
    fn stride_ends(&self, list: &str) -> Vec<StrideEnd> {
        let mut ends: Vec<StrideEnd> = Vec::with_capacity(list.len() / STRIDE);
        let mut from = 0;
        let comma = |from: usize| {
            let after = list.as_bytes().get(from + STRIDE..)?;
            Some(from + STRIDE + memchr::memchr(b',', after)? + 1)
        };
        while let Some(at) = comma(from) {
            let before = ends.last().map(|end| end.hash);
            let hash = self.pieces.hash(SPACE, before, &list[from..at]);
            ends.push(StrideEnd { at, hash });
            from = at;
        }
        ends
    }

    fn keep_stride(&self, before: Option<Arc<Node>>, hash: u64, text: &str, tokens: &[u32]) -> Arc<Node> {
        let stride = NewNode { before, text, tokens };
        self.pieces.insert(SPACE, hash, stride)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(part: &str) -> Option<Vec<u32>> {
        serde_json::from_str(&format!("[{part}]")).ok()
    }

    fn list(ids: &[u32]) -> String {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        ids.join(", ")
    }

    #[test]
    fn a_longer_list_reads_only_its_new_strides() {
        let cache = TokenizationCache::new(1 << 20);
        let ids: Vec<u32> = (100_000..103_000).collect();
        let first = cache.read_ids(&list(&ids[..2_500]), read).unwrap();
        assert_eq!((first.ids.as_slice(), first.cached), (&ids[..2_500], 0));
        let second = cache.read_ids(&list(&ids), read).unwrap();
        assert_eq!(second.ids, ids);
        assert!(second.cached > 2_000, "{}", second.cached);
        assert!(second.beginning.unwrap().tokens() > second.cached);
        let other = cache.read_ids(&list(&ids[1..]), read).unwrap();
        assert_eq!((other.ids.as_slice(), other.cached), (&ids[1..], 0));
    }

    #[test]
    fn a_list_with_something_else_has_no_ids() {
        let cache = TokenizationCache::new(1 << 20);
        let good = list(&(0..2_000).collect::<Vec<_>>());
        for bad in ["x", "-1", "1.5", "4294967296", "[1, 2]"] {
            assert!(cache.read_ids(&format!("{good}, {bad}"), read).is_none(), "{bad}");
            assert!(cache.read_ids(&format!("{bad}, {good}"), read).is_none(), "{bad}");
        }
        assert!(
            cache
                .read_ids(&format!("{good},"), |part| read(part)
                    .filter(|ids| !ids.is_empty()))
                .is_none()
        );
    }

    #[test]
    fn without_a_cache_nothing_is_kept() {
        let cache = TokenizationCache::new(0);
        let ids: Vec<u32> = (0..3_000).collect();
        for _ in 0..2 {
            let found = cache.read_ids(&list(&ids), read).unwrap();
            assert_eq!((found.ids.as_slice(), found.cached), (ids.as_slice(), 0));
        }
        assert_eq!(cache.bytes(), 0);
    }

    proptest! {
        #[test]
        fn a_list_has_the_ids_that_json_has(
            ids in prop::collection::vec(any::<u32>(), 1..3_000),
            kept in 0..3_000_usize,
        ) {
            let cache = TokenizationCache::new(1 << 20);
            let known = list(&ids[..kept.clamp(1, ids.len())]);
            let _ = cache.read_ids(&known, read);
            prop_assert_eq!(cache.read_ids(&list(&ids), read).unwrap().ids, ids);
        }
    }
}
