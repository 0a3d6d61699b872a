//! Hashes of a known conversation's blocks, which its caller computes and keeps with the conversation.
//!
//! A turn repeats the tokens of the turns before, and so the hashes of their blocks. A state keeps only the hashes that
//! no earlier state has.

use std::sync::Arc;

use crate::node_table::Node;

/// Everything besides the tokens that the hash of a block depends on. Equal tokens have equal hashes in one space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashSpace {
    /// Tokens of a block, above 0.
    pub block_size: u32,
    /// The other inputs.
    pub inputs: u128,
}

/// Hashes that a state keeps.
#[derive(Debug)]
pub(crate) struct NodeHashes {
    space: HashSpace,
    /// Number of blocks before them, whose hashes earlier states have.
    from: usize,
    hashes: Box<[u64]>,
}

impl NodeHashes {
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.hashes)
    }

    /// Returns the number of blocks up to the last hash.
    fn end(&self) -> usize {
        self.from + self.hashes.len()
    }
}

/// State of a conversation: it stands for the first tokens of a prompt.
#[derive(Debug, Clone)]
pub struct KnownBeginning(pub(crate) Arc<Node>);

impl KnownBeginning {
    /// Returns the number of its tokens.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.0.count
    }

    /// Returns the kept hashes of the first blocks, in the space of the latest ones.
    #[must_use]
    pub fn hashes(&self) -> Option<(HashSpace, Vec<u64>)> {
        let latest = self.0.chain().find_map(Node::hashes)?;
        let mut hashes = vec![0; latest.end()];
        let mut rest = latest.end();
        let parts = self.0.chain().filter_map(Node::hashes);
        for part in parts.filter(|part| part.space == latest.space) {
            if part.end() == rest {
                hashes[part.from..rest].copy_from_slice(&part.hashes);
                rest = part.from;
            }
            if rest == 0 {
                return Some((latest.space, hashes));
            }
        }
        None
    }

    /// Keeps the hashes of the first blocks with the states that have none, as far as they are blocks of a state.
    pub fn keep(&self, space: HashSpace, hashes: &[u64]) {
        if self.0.hashes().is_some() || space.block_size == 0 {
            return;
        }
        let states: Vec<_> = self.0.chain().collect();
        let mut from = 0;
        for state in states.into_iter().rev() {
            if let Some(known) = state.hashes() {
                if known.space == space {
                    from = known.end();
                }
                continue;
            }
            let end = hashes.len().min(state.count / space.block_size as usize);
            if let Some(own) = hashes.get(from..end).filter(|own| !own.is_empty()) {
                state.keep(NodeHashes {
                    space,
                    from,
                    hashes: own.into(),
                });
                from = end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::node_table::{NewNode, NodeTable};

    fn space(block_size: u32, inputs: u128) -> HashSpace {
        HashSpace { block_size, inputs }
    }

    /// Returns hashes that differ by space and block.
    fn hashes(space: HashSpace, count: usize) -> Vec<u64> {
        let hash = |block| u64::from(space.block_size) << 40 | (space.inputs as u64) << 32 | block as u64;
        (0..count).map(hash).collect()
    }

    /// Makes a state of `tokens` tokens after another.
    fn state(table: &NodeTable, before: Option<&KnownBeginning>, tokens: usize) -> KnownBeginning {
        let node = NewNode {
            before: before.map(|before| Arc::clone(&before.0)),
            text: "x",
            tokens: &vec![0; tokens],
        };
        KnownBeginning(table.insert(1, 1, node))
    }

    #[test]
    fn another_continuation_of_a_state_finds_its_hashes() {
        let table = NodeTable::new(usize::MAX);
        let first = state(&table, None, 40);
        let [one, other] = [20, 30].map(|tokens| state(&table, Some(&first), tokens));
        one.keep(space(16, 0), &hashes(space(16, 0), 3));
        assert_eq!(other.hashes(), Some((space(16, 0), hashes(space(16, 0), 2))));
    }

    #[test]
    fn a_state_keeps_only_the_hashes_that_no_earlier_state_has() {
        let table = NodeTable::new(usize::MAX);
        let first = state(&table, None, 33);
        let second = state(&table, Some(&first), 16);
        first.keep(space(16, 7), &hashes(space(16, 7), 9));
        assert_eq!(first.hashes(), Some((space(16, 7), hashes(space(16, 7), 2))));
        assert_eq!(second.hashes(), first.hashes());
        let before = table.bytes();
        second.keep(space(16, 7), &hashes(space(16, 7), 3));
        assert_eq!(second.hashes(), Some((space(16, 7), hashes(space(16, 7), 3))));
        assert_eq!(table.bytes() - before, size_of::<NodeHashes>() + 8);
    }

    proptest! {
        #[test]
        fn hashes_are_those_of_their_space_and_of_the_beginnings_blocks(
            lengths in prop::collection::vec(0..40_usize, 1..8),
            kept in prop::collection::vec((0..8_usize, 1..4_u32, 0..2_u128, 0..80_usize), 0..12),
        ) {
            let table = NodeTable::new(usize::MAX);
            let mut states: Vec<KnownBeginning> = Vec::new();
            for &tokens in &lengths {
                states.push(state(&table, states.last(), tokens));
            }
            for (at, block_size, inputs, count) in kept {
                let space = space(8 * block_size, inputs);
                states[at % lengths.len()].keep(space, &hashes(space, count));
            }
            for state in &states {
                if let Some((space, known)) = state.hashes() {
                    prop_assert!(known.len() <= state.tokens() / space.block_size as usize);
                    prop_assert_eq!(&known, &hashes(space, known.len()));
                }
            }
            let bytes = states[0].0.all_bytes();
            drop((table, states));
            prop_assert_eq!(bytes(), 0, "the memory of hashes is counted");
        }
    }
}
