//! One cache of the reference: its names, lane by lane, and what they stand for.

use std::collections::{BTreeMap, HashMap};

use kv_index::Applied;
use routing::{Attention, ExtraKey, StoredBlocks, Tier};

use super::contents::{Above, Content, Contents, own_keys};
use super::model::Depths;

const SLOW: [Tier; 2] = [Tier::Disk, Tier::Shared];

/// The blocks of one group on one tier.
pub(crate) type Lane = (Tier, u32);

/// Meaning of an engine hash at one holder.
#[derive(Debug)]
enum Name {
    Stands {
        content: Content,
        lanes: Vec<Lane>,
    },
    /// The hash was used for two contents.
    Ambiguous,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) block_size: u32,
    pub(crate) attention: Attention,
}

/// Blocks that a cache may hold when it turns out what its blocks are like: as the index has it.
const BEGINNING: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Cache {
    names: HashMap<u64, Name>,
    /// Tokens of the blocks that chains are made of; 0 before the first group. Other groups' blocks may be several of
    /// those long: such a block stands for the chain up to its end.
    pub(crate) base: u32,
    groups: BTreeMap<u32, Shape>,
    /// Number of names of each lane that stand for a content.
    pub(crate) held: HashMap<(Lane, Content), u32>,
}

impl Cache {
    /// Returns whether a group's blocks are or may be like this. Shorter blocks than a group had before are partial
    /// blocks, which do not count. If shorter ones came first, or a group with shorter blocks comes late, all blocks
    /// are forgotten. The groups are not. Only blocks of one tier make each other forgotten, but the first ones on the
    /// device do that to all others.
    pub(crate) fn admit(&mut self, (tier, group): Lane, shape: Shape, cleared: &mut u64) -> bool {
        let size = shape.block_size;
        let mut may_be_again = true;
        match self.groups.get(&group) {
            Some(known) if known == &shape => return true,
            Some(known) => may_be_again = known.attention == shape.attention && known.block_size < size,
            None if self.base == 0 || size.is_multiple_of(self.base) => {
                self.learn(group, shape);
                return true;
            }
            None => may_be_again &= self.base.is_multiple_of(size),
        }
        let tiers = self.held.keys().map(|((tier, _), _)| *tier);
        let is_first_on_device = tier == Tier::Device && !tiers.clone().any(|other| other == tier);
        may_be_again &= tiers.clone().all(|other| other == tier);
        if self.held.len() > BEGINNING || !(is_first_on_device || may_be_again) {
            return false;
        }
        *cleared += self.held.len() as u64;
        let mut groups = std::mem::take(&mut self.groups);
        groups.retain(|&other, shape| {
            !is_first_on_device && other != group && shape.block_size.is_multiple_of(size)
        });
        *self = Self {
            groups,
            ..Self::default()
        };
        self.learn(group, shape);
        true
    }

    fn learn(&mut self, group: u32, shape: Shape) {
        if self.base == 0 {
            self.base = shape.block_size;
        }
        self.groups.insert(group, shape);
    }

    pub(crate) fn stands_for(&self, name: u64) -> Option<Content> {
        match self.names.get(&name) {
            Some(Name::Stands { content, .. }) => Some(*content),
            _ => None,
        }
    }

    pub(crate) fn store(
        &mut self,
        contents: &mut Contents,
        mut above: Above,
        stored: &StoredBlocks,
        applied: &mut Applied,
    ) {
        let blocks = stored.tokens.chunks_exact(stored.block_size as usize);
        for (at, (hash, tokens)) in stored.hashes.iter().zip(blocks).enumerate() {
            let keys = stored.extra_keys.get(at).map_or(&[][..], Vec::as_slice);
            let keys = own_keys(keys, stored.lora.as_ref());
            let by_name = self.stands_for(hash.0).filter(|_| stored.block_size > self.base);
            let content = by_name.unwrap_or_else(|| self.extend(contents, above, tokens, &keys));
            let Some(is_new) = self.hold(hash.0, content, (stored.tier, stored.group)) else {
                applied.ambiguous += 1;
                applied.unknown_parent += (stored.hashes.len() - at - 1) as u64;
                return;
            };
            *(if is_new {
                &mut applied.stored
            } else {
                &mut applied.known
            }) += 1;
            above = Above::Block(content);
        }
    }

    /// Returns the chain that goes on from `above` by one block of the engine's; its keys are those of its first part.
    fn extend(
        &self,
        contents: &mut Contents,
        mut above: Above,
        tokens: &[u32],
        keys: &[ExtraKey],
    ) -> Content {
        let mut parts = tokens.chunks_exact(self.base as usize).enumerate();
        let last = parts.try_fold(None, |_, (part, tokens)| {
            let content = contents.block(above, tokens, if part == 0 { keys } else { &[] });
            above = Above::Block(content);
            Some(Some(content))
        });
        last.flatten().expect("a block has at least one part")
    }

    /// Returns whether the block is new in the lane. `None` if the name stands or stood for another content.
    fn hold(&mut self, name: u64, content: Content, lane: Lane) -> Option<bool> {
        let known = self.names.entry(name).or_insert(Name::Stands {
            content,
            lanes: Vec::new(),
        });
        match known {
            Name::Stands {
                content: stands,
                lanes,
            } if *stands == content => {
                let is_new = !lanes.contains(&lane);
                if is_new {
                    lanes.push(lane);
                    *self.held.entry((lane, content)).or_insert(0) += 1;
                }
                Some(is_new)
            }
            _ => {
                self.forget(name, |_| true);
                self.names.insert(name, Name::Ambiguous);
                None
            }
        }
    }

    /// Takes a name out of some lanes; whether it was in any of them.
    pub(crate) fn forget(&mut self, hash: u64, leaves: impl Fn(&Lane) -> bool) -> bool {
        let Some(Name::Stands { content, lanes }) = self.names.get_mut(&hash) else {
            return false;
        };
        let mut gone = false;
        for lane in lanes.extract_if(.., |lane| leaves(lane)) {
            gone = true;
            let count = self
                .held
                .get_mut(&(lane, *content))
                .expect("a held name is counted");
            *count -= 1;
            if *count == 0 {
                self.held.remove(&(lane, *content));
            }
        }
        if lanes.is_empty() {
            self.names.remove(&hash);
        }
        gone
    }

    pub(crate) fn depths(&self, chain: &[Content]) -> Depths {
        let mut groups = self.groups.iter();
        match (groups.next(), groups.next()) {
            (Some((&group, shape)), None) if shape.attention == Attention::Full => {
                self.walk(group, chain).map(|blocks| blocks * self.base)
            }
            _ => {
                let device = [Tier::Device];
                let host = [Tier::Device, Tier::Host];
                let any = [Tier::Device, Tier::Host, Tier::Disk, Tier::Shared];
                [&device[..], &host, &any].map(|tiers| self.usable(tiers, chain))
            }
        }
    }

    fn covers(&self, tiers: &[Tier], group: u32, content: Content) -> bool {
        tiers
            .iter()
            .any(|&tier| self.held.contains_key(&((tier, group), content)))
    }

    /// Counts blocks on the device, then from there on the host, then from there on slower tiers.
    fn walk(&self, group: u32, chain: &[Content]) -> Depths {
        let mut depth = 0;
        [&[Tier::Device][..], &[Tier::Host], &SLOW].map(|tiers| {
            depth += chain[depth..]
                .iter()
                .take_while(|&&content| self.covers(tiers, group, content))
                .count();
            depth as u32
        })
    }

    /// Returns the longest prefix, in tokens, that every group can go on from with the blocks on these tiers.
    fn usable(&self, tiers: &[Tier], chain: &[Content]) -> u32 {
        let base = self.base as usize;
        // By group: the parts that its blocks stand for, and those that one of its blocks ends with.
        let groups: Vec<(Shape, Vec<bool>, Vec<bool>)> = self
            .groups
            .iter()
            .map(|(&group, &shape)| {
                let ends: Vec<bool> = chain
                    .iter()
                    .map(|&content| self.covers(tiers, group, content))
                    .collect();
                let parts = shape.block_size as usize / base;
                let within = |part: usize| ends[part..].iter().take(parts).any(|&held| held);
                ((shape), (0..chain.len()).map(within).collect(), ends)
            })
            .collect();
        let enough = |end: usize| {
            groups.iter().all(|(shape, within, ends)| {
                let from = match shape.attention {
                    Attention::State => {
                        return end.is_multiple_of(shape.block_size as usize) && ends[end / base - 1];
                    }
                    Attention::Full => 0,
                    Attention::Window { tokens } => end.saturating_sub(tokens as usize - 1),
                    Attention::Unknown => unreachable!("such groups are skipped"),
                };
                end.is_multiple_of(shape.block_size as usize)
                    && within[from / base..end / base].iter().all(|&held| held)
            })
        };
        let ends = (1..=chain.len()).rev().map(|blocks| blocks * base);
        ends.into_iter().find(|&end| enough(end)).unwrap_or(0) as u32
    }
}
