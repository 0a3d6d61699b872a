//! Prompts of token ids: strides of a list that an earlier prompt had are not read again.

use std::sync::Arc;

use crate::cache::TokenizationCache;
use crate::kept_hashes::KnownBeginning;
use crate::node_table::{NewNode, Node};

/// Least length of a stride in bytes. It ends with the next comma.
const STRIDE: usize = 1024;
/// Share of the cache's limit that one list may have, as a divisor of its bytes: a stride takes up to three times its
/// text. Later strides are read and not kept.
const KEPT_SHARE: usize = 16;
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

/// Reader of a list, in parts.
#[derive(Debug)]
pub struct IdListReader<'a, F> {
    cache: &'a TokenizationCache,
    list: &'a str,
    read: F,
    ends: Vec<StrideEnd>,
    /// Number of the strides that are read, and their end.
    strides: usize,
    from: usize,
    ids: Vec<u32>,
    cached: usize,
    /// The last stride that is kept.
    node: Option<Arc<Node>>,
}

impl<F: Fn(&str) -> Option<Vec<u32>>> IdListReader<'_, F> {
    /// Reads so many further strides. Returns `true` if there are more; `None` if an element is no id.
    pub fn read_strides(&mut self, count: usize) -> Option<bool> {
        let most_kept = self.cache.pieces.limit() / KEPT_SHARE;
        let to = self.ends.len().min(self.strides + count);
        for end in &self.ends[self.strides..to] {
            let text = &self.list[self.from..end.at];
            let tokens = (self.read)(text.strip_suffix(',')?)?;
            self.ids.extend_from_slice(&tokens);
            if end.at <= most_kept {
                let before = self.node.take();
                self.node = Some(self.cache.keep_stride(before, end.hash, text, &tokens));
            }
            self.from = end.at;
        }
        self.strides = to;
        Some(to < self.ends.len())
    }

    /// Reads the rest of the list. Returns `None` if an element is no id.
    #[must_use]
    pub fn finish(mut self) -> Option<ListedIds> {
        self.read_strides(usize::MAX - self.strides)?;
        self.ids.extend((self.read)(&self.list[self.from..])?);
        Some(ListedIds {
            ids: self.ids,
            cached: self.cached,
            beginning: self.node.map(KnownBeginning),
        })
    }
}

impl TokenizationCache {
    /// Reads a JSON list of ids, without its brackets. `read` reads the ids of a part of it, and returns `None` if one
    /// of them is no id; then there is no result. New strides are kept.
    pub fn read_ids(&self, list: &str, read: impl Fn(&str) -> Option<Vec<u32>>) -> Option<ListedIds> {
        self.id_reader(list, read).finish()
    }

    /// Returns a reader of a list, as [`read_ids`](Self::read_ids) reads it. The known strides are read.
    pub fn id_reader<'a, F: Fn(&str) -> Option<Vec<u32>>>(
        &'a self,
        list: &'a str,
        read: F,
    ) -> IdListReader<'a, F> {
        let ends = self.stride_ends(list);
        let known = ends.iter().enumerate().rev().find_map(|(index, end)| {
            let node = self.pieces.get(SPACE, end.hash, &list[..end.at])?;
            Some((index + 1, node))
        });
        let (strides, node) = known.map_or((0, None), |(strides, node)| (strides, Some(node)));
        // Most ids have at least four digits.
        let mut ids = Vec::with_capacity(list.len() / 4);
        if let Some(known) = &node {
            known.tokens_into(&mut ids);
        }
        IdListReader {
            cache: self,
            list,
            read,
            strides,
            from: strides.checked_sub(1).map_or(0, |last| ends[last].at),
            ends,
            cached: ids.len(),
            ids,
            node,
        }
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
    fn a_long_list_leaves_most_of_the_cache_to_others() {
        let cache = TokenizationCache::new(1 << 20);
        let others: Vec<String> = (0..20)
            .map(|at| list(&(at * 1_000..(at + 1) * 1_000).collect::<Vec<_>>()))
            .collect();
        others.iter().for_each(|other| drop(cache.read_ids(other, read)));
        // Ids of one digit have the most tokens.
        let long = list(&vec![7; 1 << 20]).replace(' ', "");
        let first = cache.read_ids(&long, read).unwrap();
        assert_eq!((first.ids.len(), first.cached), (1 << 20, 0));
        assert!(cache.bytes() < 1 << 20, "{}", cache.bytes());
        for other in &others {
            assert!(cache.read_ids(other, read).unwrap().cached > 700);
        }
        let again = cache.read_ids(&long, read).unwrap();
        assert_eq!(again.ids, first.ids);
        assert!((30_000..33_000).contains(&again.cached), "{}", again.cached);
    }

    #[test]
    fn a_list_that_is_read_in_parts_has_the_same_ids() {
        let ids: Vec<u32> = (0..9_000).collect();
        let whole = list(&ids);
        for known in [0, 3_000, 9_000] {
            let cache = TokenizationCache::new(1 << 20);
            let _ = cache.read_ids(&list(&ids[..known]), read);
            let (mut reader, mut parts) = (cache.id_reader(&whole, read), 1);
            while reader.read_strides(7).unwrap() {
                parts += 1;
            }
            assert_eq!(
                (reader.finish().unwrap().ids == ids, parts > 1),
                (true, known < 9_000)
            );
        }
        let cache = TokenizationCache::new(1 << 20);
        let mut reader = cache.id_reader(&whole, |_| None);
        assert!(reader.read_strides(7).is_none());
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
