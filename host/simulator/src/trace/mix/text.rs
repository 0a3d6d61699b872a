//! A prompt without its words: how long it is, and which of its blocks are the same as in other prompts.

use super::draws::{Percentiles, value_at};

/// Prompt tokens of a block, as in Mooncake's files.
pub(super) const BLOCK_TOKENS: u32 = 512;

/// Tokens that no prompt exceeds: the context of the model behind Mooncake's traces.
pub(super) const CONTEXT_TOKENS: u32 = 128_000;

/// Multiples of it, without their whole parts, are evenly scattered however many there are (Weyl).
const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;

/// Gives every new block its id.
#[derive(Debug, Default)]
pub(super) struct BlockIds(u64);

impl BlockIds {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Beginning of a prompt. Its clones go on differently: a block that is not full yet will be another one in each.
#[derive(Debug, Clone, Default)]
pub(super) struct Text {
    tokens: u32,
    /// The full ones.
    blocks: Vec<u64>,
}

impl Text {
    pub(super) fn new(tokens: u32, ids: &mut BlockIds) -> Self {
        Self::default().and(tokens, ids)
    }

    /// Returns `count` texts that have nothing in common. Their lengths are scattered so evenly over the percentiles
    /// that the first few, which most requests share, are neither all long nor all short, whatever the seed.
    pub(super) fn several(count: u32, lengths: &Percentiles, ids: &mut BlockIds) -> Vec<Self> {
        (0..count)
            .map(|index| (0.5 + f64::from(index) * GOLDEN_RATIO).fract())
            .map(|share| Self::new(value_at(lengths, share) as u32, ids))
            .collect()
    }

    pub(super) fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Adds so many tokens, which no other text has.
    pub(super) fn and(mut self, tokens: u32, ids: &mut BlockIds) -> Self {
        self.tokens += tokens;
        while self.blocks.len() < (self.tokens / BLOCK_TOKENS) as usize {
            self.blocks.push(ids.next());
        }
        self
    }

    /// Returns its first full blocks, at least one where it has any.
    pub(super) fn cut(mut self, blocks: usize) -> Self {
        self.blocks.truncate(blocks.max(1));
        self.tokens = self.blocks.len() as u32 * BLOCK_TOKENS;
        self
    }

    /// Returns how many are full.
    pub(super) fn full_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns one id for each block, also for the last one where it is not full.
    pub(super) fn blocks(&self, ids: &mut BlockIds) -> Box<[u64]> {
        let rest = (!self.tokens.is_multiple_of(BLOCK_TOKENS)).then(|| ids.next());
        self.blocks.iter().copied().chain(rest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_full_blocks_as_it_grows() {
        let ids = &mut BlockIds::default();
        let text = Text::new(700, ids);
        assert_eq!(*text.blocks(ids), [1, 2]);
        let longer = text.clone().and(400, ids);
        assert_eq!(longer.tokens(), 1100);
        assert_eq!(*longer.blocks(ids), [1, 3, 4]);
        assert_eq!(*text.and(324, ids).blocks(ids), [1, 5]);
    }

    #[test]
    fn a_cut_text_shares_what_is_left() {
        let ids = &mut BlockIds::default();
        let text = Text::new(5 * 512, ids).cut(2);
        assert_eq!((text.full_blocks(), text.tokens()), (2, 1024));
        assert_eq!(*text.and(1, ids).blocks(ids), [1, 2, 6]);
    }
}
