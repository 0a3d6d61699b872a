//! Token ids of a prompt, most of which its cache may share.

use std::sync::Arc;

use crate::node_table::Node;

/// Tokens of a known beginning that are copied all the same: the next block to hash begins among them.
const COPIED: usize = 1024;

/// Token ids of a prompt. Those of a known conversation stay in the cache: a caller that keeps the hashes of their
/// blocks ([`KnownBeginning`](crate::KnownBeginning)) does not need them again.
#[derive(Debug, Default)]
pub struct TokenIds {
    shared: Option<SharedTokens>,
    rest: Vec<u32>,
}

/// First tokens of a prompt, in the cache.
#[derive(Debug)]
pub struct SharedTokens {
    node: Arc<Node>,
    /// Number of the node's tokens that are shared, above 0.
    count: usize,
}

impl TokenIds {
    /// Starts with the tokens of a known conversation, with room for `more`.
    pub(crate) fn continuing(node: &Arc<Node>, more: usize) -> Self {
        let count = node.count.saturating_sub(COPIED);
        let mut rest = Vec::with_capacity(node.count - count + more);
        node.tokens_from(count, &mut rest);
        let shared = (count > 0).then(|| SharedTokens {
            node: Arc::clone(node),
            count,
        });
        Self { shared, rest }
    }

    /// Returns the number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared() + self.rest.len()
    }

    /// Returns `true` if there are no tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of shared tokens.
    fn shared(&self) -> usize {
        self.shared.as_ref().map_or(0, SharedTokens::count)
    }

    /// Returns the tokens from position `from` to `to`, unless some of them are shared.
    pub(crate) fn range(&self, from: usize, to: usize) -> Option<&[u32]> {
        let shared = self.shared();
        self.rest.get(from.checked_sub(shared)?..to.checked_sub(shared)?)
    }

    /// Returns the tokens that are not shared, to append to.
    pub(crate) fn rest_mut(&mut self) -> &mut Vec<u32> {
        &mut self.rest
    }

    /// Returns a copy of all tokens.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u32> {
        let mut all = Vec::with_capacity(self.len());
        if let Some(shared) = &self.shared {
            shared.read_into(&mut all);
        }
        all.extend_from_slice(&self.rest);
        all
    }

    /// Returns the shared tokens, if there are some, and those after them.
    #[must_use]
    pub fn into_parts(self) -> (Option<SharedTokens>, Vec<u32>) {
        (self.shared, self.rest)
    }
}

impl From<Vec<u32>> for TokenIds {
    fn from(rest: Vec<u32>) -> Self {
        Self { shared: None, rest }
    }
}

impl SharedTokens {
    /// Returns the number of tokens, above 0.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Appends the tokens.
    pub fn read_into(&self, to: &mut Vec<u32>) {
        let from = to.len();
        self.node.tokens_from(0, to);
        to.truncate(from + self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_table::{NewNode, NodeTable};

    /// Returns a state of the tokens from 0 to `lengths`' sum, in as many nodes.
    fn state(lengths: &[usize]) -> (Arc<Node>, Vec<u32>) {
        let table = NodeTable::new(0);
        let (mut node, mut all) = (None, Vec::new());
        for &length in lengths {
            let from = all.len();
            all.extend((from..from + length).map(|id| id as u32));
            node = Some(table.insert(
                1,
                1,
                NewNode {
                    before: node,
                    text: "x",
                    tokens: &all[from..],
                },
            ));
        }
        (node.unwrap(), all)
    }

    #[test]
    fn all_tokens_are_there_however_many_are_shared() {
        for lengths in [
            &[COPIED - 1][..],
            &[COPIED],
            &[COPIED + 1],
            &[5, 2 * COPIED, 7],
            &[3 * COPIED, 1, 1],
            &[7, 0, COPIED - 1, 1],
        ] {
            let (node, mut all) = state(lengths);
            let mut ids = TokenIds::continuing(&node, 2);
            ids.rest_mut().extend([9, 8]);
            all.extend([9, 8]);
            assert_eq!((ids.len(), ids.to_vec()), (all.len(), all.clone()));
            let shared = node.count.saturating_sub(COPIED);
            assert_eq!(ids.range(shared, all.len()), Some(&all[shared..]));
            assert!(shared == 0 || ids.range(shared - 1, all.len()).is_none());
            let (before, rest) = ids.into_parts();
            assert_eq!(before.map_or(0, |before| before.count()), shared);
            assert_eq!(rest, all[shared..]);
        }
    }

    #[test]
    fn a_prompt_of_its_own_shares_nothing() {
        let ids = TokenIds::from(vec![1, 2]);
        assert_eq!((ids.len(), ids.is_empty()), (2, false));
        assert!(TokenIds::default().is_empty());
        assert!(ids.into_parts().0.is_none());
    }
}
