//! Path of a prompt through the runs.

use crate::forest::RunForest;
use crate::naming::AliasLookup;
use crate::prompt::Prompt;
use crate::run::{BlockRun, RunId};

/// Blocks hashed beyond the known match.
const STRIDE: u32 = 64;

/// A chain of blocks to follow. Only whole blocks count; `base` is the number already passed.
pub(crate) trait BlockPath {
    /// Returns the number of blocks.
    fn blocks(&self) -> u32;

    /// Returns the run that continues the path.
    fn enter(&mut self, forest: &RunForest, base: u32) -> Option<RunId>;

    /// Returns the number of blocks of the entered run that are on the path, at most `most` (at least 1).
    fn matched(&mut self, forest: &RunForest, run: &BlockRun, base: u32, most: u32) -> u32;
}

/// Blocks of a prompt, of one size.
pub(crate) struct PromptPath<'p, 't> {
    pub(crate) prompt: &'p mut Prompt<'t>,
    pub(crate) block_size: u32,
}

impl BlockPath for PromptPath<'_, '_> {
    fn blocks(&self) -> u32 {
        u32::try_from(self.prompt.blocks(self.block_size)).unwrap_or(u32::MAX)
    }

    fn enter(&mut self, forest: &RunForest, base: u32) -> Option<RunId> {
        let hashes = self.prompt.hashes(self.block_size, base as usize + 1);
        forest.head(*hashes.get(base as usize)?)
    }

    fn matched(&mut self, forest: &RunForest, run: &BlockRun, base: u32, most: u32) -> u32 {
        let most = most.min(self.blocks().saturating_sub(base));
        let mut same = 1;
        while same < most {
            let ahead = base as usize + (same + STRIDE).min(most) as usize;
            let known = self.prompt.hashes(self.block_size, ahead);
            let end = known.len().min((base + most) as usize);
            let contents = &known[(base + same) as usize - 1..end];
            let common = forest.common(run, same - 1, contents);
            same += common - 1;
            if (common as usize) < contents.len() {
                break;
            }
        }
        same
    }
}

/// Sequence hashes computed by a client.
pub(crate) struct SequencePath<'a>(pub(crate) &'a [u64]);

impl BlockPath for SequencePath<'_> {
    fn blocks(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    fn enter(&mut self, forest: &RunForest, base: u32) -> Option<RunId> {
        let run = forest.head(*self.0.get(base as usize)?)?;
        // The hashes may be forged: only blocks stored consecutively from a chain's start on form a prefix.
        let before = base.checked_sub(1).map(|before| self.0[before as usize]);
        (forest.run(run).parent == before).then_some(run)
    }

    fn matched(&mut self, forest: &RunForest, run: &BlockRun, base: u32, most: u32) -> u32 {
        let rest = &self.0[base as usize..];
        forest.common(run, 0, &rest[..rest.len().min(most as usize)])
    }
}

/// Engine hashes of a path's blocks.
pub(crate) struct NamedPath<'a> {
    pub(crate) names: &'a [u64],
    pub(crate) naming: AliasLookup<'a>,
    /// Sequence hash of the passed blocks.
    pub(crate) behind: Option<u64>,
}

impl BlockPath for NamedPath<'_> {
    fn blocks(&self) -> u32 {
        u32::try_from(self.names.len()).unwrap_or(u32::MAX)
    }

    fn enter(&mut self, forest: &RunForest, base: u32) -> Option<RunId> {
        let name = *self.names.get(base as usize)?;
        let behind = self.behind;
        let follows = |block| {
            let place = forest.place(block);
            (place.at == 0 && forest.run(place.run).parent == behind).then_some(place.run)
        };
        forest
            .find_named(name, follows)
            .or_else(|| self.naming.find(name, follows))
    }

    fn matched(&mut self, forest: &RunForest, run: &BlockRun, base: u32, most: u32) -> u32 {
        let names = self.names[base as usize..]
            .iter()
            .take(most.min(run.len) as usize);
        let mut same = 0;
        for &name in names {
            let block = forest.block_of(run, same);
            let is_next = forest.name(run, same) == Some(name)
                || self
                    .naming
                    .find(name, |alias| (alias == block).then_some(()))
                    .is_some();
            if !is_next {
                break;
            }
            same += 1;
        }
        self.behind = Some(forest.content(run, same.max(1) - 1));
        same
    }
}
