//! Numbers for contents: two blocks get the same number exactly when their whole chains are equal. Nothing is hashed
//! away.

use std::collections::HashMap;

use routing::{ExtraKey, Lora};

/// A chain up to and including one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Content(u32);

/// Parent of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Above {
    /// No parent: the block is the first of a prompt for this adapter, by its number.
    Root(u32),
    Block(Content),
}

/// All contents seen so far.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    loras: HashMap<Option<Lora>, u32>,
    tokens: HashMap<Box<[u32]>, u32>,
    keys: HashMap<Vec<ExtraKey>, u32>,
    links: HashMap<(Above, u32, u32), Content>,
}

impl Contents {
    pub(crate) fn root(&mut self, lora: Option<&Lora>) -> Above {
        let next = number(self.loras.len());
        Above::Root(*self.loras.entry(lora.cloned()).or_insert(next))
    }

    /// Returns the block of these tokens and extra keys below `above`.
    pub(crate) fn block(&mut self, above: Above, tokens: &[u32], keys: &[ExtraKey]) -> Content {
        let next = number(self.tokens.len());
        let tokens = match self.tokens.get(tokens) {
            Some(&known) => known,
            None => *self.tokens.entry(tokens.into()).or_insert(next),
        };
        let next = number(self.keys.len());
        let keys = match self.keys.get(keys) {
            Some(&known) => known,
            None => *self.keys.entry(keys.into()).or_insert(next),
        };
        let next = Content(number(self.links.len()));
        *self.links.entry((above, tokens, keys)).or_insert(next)
    }

    /// Returns the content of [`Contents::block`], if it was ever seen.
    pub(crate) fn find(&self, above: Above, tokens: &[u32], keys: &[ExtraKey]) -> Option<Content> {
        let link = (above, *self.tokens.get(tokens)?, *self.keys.get(keys)?);
        self.links.get(&link).copied()
    }

    /// Returns the root of [`Contents::root`], if it was ever seen.
    pub(crate) fn find_root(&self, lora: Option<&Lora>) -> Option<Above> {
        Some(Above::Root(*self.loras.get(&lora.cloned())?))
    }
}

fn number(len: usize) -> u32 {
    u32::try_from(len).expect("a test does not see 2^32 contents")
}

/// Returns the other inputs of a block: its extra keys without one mention of the adapter, which its root stands for.
pub(crate) fn own_keys(keys: &[ExtraKey], lora: Option<&Lora>) -> Vec<ExtraKey> {
    let mut own = keys.to_vec();
    if let Some(Lora::Name(name)) = lora
        && let Some(at) = own
            .iter()
            .position(|key| matches!(key, ExtraKey::Text(text) if **text == **name))
    {
        own.remove(at);
    }
    own
}
