//! Contents of one backend's cache, and their changes.

use std::collections::{HashSet, VecDeque};

use super::wire;
use crate::generate::PromptForm;
use crate::generate::prompts::{groups, shared_tokens};

/// Tokens a block.
pub(super) const BLOCK: usize = 16;
/// Blocks of a chain that belongs to no prompt, and of one that comes and goes.
const CHAIN: u64 = 128;
const SHORT_CHAIN: u64 = 8;
/// Short chains that are kept before the oldest goes.
const KEPT: usize = 16;
/// Events per batch during the initial announcement.
const EVENTS: usize = 16;
/// The prompts whose shared part is announced; shorter ones of the same groups begin alike.
const LENGTH: usize = 32 * 1024;

/// Blocks one behind the other.
pub(super) struct Chain {
    /// Block before the first one. `None` if that begins a prompt.
    pub(super) parent: Option<u64>,
    pub(super) hashes: Vec<u64>,
    pub(super) tokens: Vec<u32>,
}

pub(super) struct Holding {
    shared: Vec<Chain>,
    /// Number of further chains.
    filling: u64,
    /// Makes this backend's hashes and filling unique.
    number: u64,
    passing: VecDeque<Vec<u64>>,
    passed: u64,
}

impl Holding {
    /// Returns the contents of backend `number` of `count`, with about so many blocks besides those that prompts share.
    pub(super) fn new(number: u16, count: u16, fill: u64) -> Self {
        let own = |group: &u64| group % u64::from(count) == u64::from(number);
        let forms = [PromptForm::Chat, PromptForm::Turns, PromptForm::Ids];
        let prompts = forms.into_iter().flat_map(|form| {
            let prompts = (0..groups(form)).filter(own);
            prompts.map(move |group| shared_tokens(form, group, LENGTH))
        });
        let number = u64::from(number);
        let mut known = HashSet::new();
        let shared = prompts.map(|tokens| Chain::of(number, tokens).without(&mut known));
        Self {
            shared: shared.collect(),
            filling: fill / CHAIN,
            number,
            passing: VecDeque::new(),
            passed: 0,
        }
    }

    pub(super) fn blocks(&self) -> u64 {
        let shared: usize = self.shared.iter().map(|chain| chain.hashes.len()).sum();
        shared as u64 + self.filling * CHAIN
    }

    /// Returns all of it, as batches.
    pub(super) fn batches(&self) -> Vec<Vec<u8>> {
        let filling: Vec<_> = (0..self.filling)
            .map(|place| self.made_up(place, CHAIN))
            .collect();
        let chains: Vec<_> = self.shared.iter().chain(&filling).collect();
        chains
            .chunks(EVENTS)
            .map(|chains| wire::batch(chains, &[]))
            .collect()
    }

    /// Returns one batch: a chain is added, and the oldest of those removed.
    pub(super) fn change(&mut self) -> Vec<u8> {
        self.passed += 1;
        let chain = self.made_up((1 << 22) + self.passed % (1 << 22), SHORT_CHAIN);
        self.passing.push_back(chain.hashes.clone());
        let gone = if self.passing.len() > KEPT {
            self.passing.pop_front().unwrap_or_default()
        } else {
            Vec::new()
        };
        wire::batch(&[&chain], &gone)
    }

    /// Returns a chain that no prompt begins with.
    fn made_up(&self, place: u64, blocks: u64) -> Chain {
        let mut state = (self.number << 32) + place;
        let tokens = (0..blocks * BLOCK as u64).map(|_| {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            256 + (state >> 33) as u32 % 4_000
        });
        Chain::of(self.number, tokens.collect())
    }
}

impl Chain {
    /// Returns the whole blocks of a prompt. Equal beginnings have equal hashes, as with a real engine; other backends
    /// have others.
    fn of(backend: u64, mut tokens: Vec<u32>) -> Self {
        tokens.truncate(tokens.len() / BLOCK * BLOCK);
        let mut hash = backend;
        let hashes = tokens.chunks(BLOCK).map(|block| {
            for token in block {
                hash = (hash ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                hash ^= hash >> 32;
            }
            hash
        });
        Self {
            parent: None,
            hashes: hashes.collect(),
            tokens,
        }
    }

    /// Returns the blocks after the known ones, which all become known.
    fn without(mut self, known: &mut HashSet<u64>) -> Self {
        let first = self.hashes.iter().position(|hash| !known.contains(hash));
        let first = first.unwrap_or(self.hashes.len());
        self.parent = first.checked_sub(1).map(|before| self.hashes[before]);
        self.hashes.drain(..first);
        self.tokens.drain(..first * BLOCK);
        known.extend(&self.hashes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_group_is_held_by_one_backend() {
        let shared = |count| {
            (0..count)
                .map(|number| Holding::new(number, count, 0).shared.len())
                .sum::<usize>()
        };
        let forms = [PromptForm::Chat, PromptForm::Turns, PromptForm::Ids];
        let all = forms.into_iter().map(groups).sum::<u64>() as usize;
        assert_eq!([shared(1), shared(4), shared(100)], [all; 3]);
    }

    #[test]
    fn no_hash_means_two_blocks() {
        let mut hashes = HashSet::new();
        for number in 0..3 {
            let mut holding = Holding::new(number, 3, 1_024);
            let mut chains: Vec<_> = (0..holding.filling)
                .map(|place| holding.made_up(place, CHAIN))
                .collect();
            chains.append(&mut holding.shared);
            for hash in chains.iter().flat_map(|chain| &chain.hashes) {
                assert!(hashes.insert(*hash));
            }
        }
    }

    #[test]
    fn the_shared_beginning_of_conversations_is_reported_once() {
        let holding = Holding::new(0, 1, 0);
        let followers = holding.shared.iter().filter(|chain| chain.parent.is_some());
        assert_eq!(followers.count() as u64, groups(PromptForm::Turns) - 1);
    }

    #[test]
    fn a_change_removes_what_came_earlier_and_never_grows_beyond_a_few_chains() {
        let mut holding = Holding::new(0, 1, 0);
        let batches: Vec<_> = (0..100).map(|_| holding.change()).collect();
        assert!(batches[0] != batches[99]);
        assert_eq!(holding.passing.len(), KEPT);
    }
}
