//! Engines that act out a script: they name blocks, remember what they hold, and publish it as events.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use kv_index::Holder;
use routing::{
    Attention, BlockEvent, EngineBlockHash, ExtraKey, Lora, RemovedBlocks, StoredBlocks, Tier, WorkerId,
};

use super::model::Asked;
use super::script::{From, Group, LETTER, Naming, Oddity, Order, Prompt, Script, Step};

const ADAPTER: &str = "ad";
const SALT: &str = "salt";

pub(crate) struct Engines<'a> {
    script: &'a Script,
    /// Source of all prompts' block names, by prompt and letters a block.
    digests: HashMap<(usize, usize), Rc<[u64]>>,
    engines: HashMap<Holder, Engine>,
}

#[derive(Default)]
struct Engine {
    /// Small numbers given so far, by the content they name.
    counted: HashMap<u64, u64>,
    held: HashSet<(u64, u32)>,
}

/// Operation on the index.
pub(crate) enum Act {
    Apply(Holder, BlockEvent),
    RemoveWorker(WorkerId),
}

/// Some blocks of one prompt as one group has them.
struct Blocks<'a> {
    prompt: &'a Prompt,
    digests: Rc<[u64]>,
    group: Group,
    naming: Naming,
}

impl Blocks<'_> {
    fn len(&self) -> usize {
        self.digests.len()
    }

    fn name(&self, holder: Holder, engine: &mut Engine, block: usize) -> u64 {
        let content = self.digests[block];
        match self.naming {
            Naming::Agreed => content,
            Naming::Twin => digest(&(content, "twin")),
            Naming::Own => digest(&(content, holder)),
            Naming::Counted => {
                let next = engine.counted.len() as u64 + 1;
                *engine.counted.entry(content).or_insert(next)
            }
            Naming::Sloppy => block as u64 + 5,
        }
    }
}

impl<'a> Engines<'a> {
    pub(crate) fn new(script: &'a Script) -> Self {
        Self {
            script,
            digests: HashMap::new(),
            engines: HashMap::new(),
        }
    }

    pub(crate) fn act(&mut self, step: &Step) -> Act {
        match *step {
            Step::RemoveWorker(worker) => {
                self.engines.retain(|holder, _| holder.worker != worker);
                Act::RemoveWorker(worker)
            }
            Step::Clear(holder) => {
                self.engines.remove(&holder);
                Act::Apply(holder, BlockEvent::Cleared)
            }
            Step::Store { holder, .. } => Act::Apply(holder, self.store(step)),
            Step::Remove { holder, .. } => Act::Apply(holder, self.remove(step)),
        }
    }

    fn blocks(&mut self, prompt: usize, group: usize, naming: Naming, odd_size: bool) -> (Blocks<'a>, u32) {
        let script = self.script;
        let number = group % script.groups.len();
        let mut group = script.groups[number];
        group.letters += usize::from(odd_size);
        let at = prompt % script.prompts.len();
        let prompt = &script.prompts[at];
        let digests = self.digests.entry((at, group.letters)).or_insert_with(|| {
            // By prefix alone: groups of unlike block sizes agree on where both have a block's end.
            let mut above = digest(&(prompt.lora, prompt.salted));
            let letters = prompt.letters.iter().map(|letter| {
                above = digest(&(above, letter));
                above
            });
            letters
                .collect::<Vec<_>>()
                .chunks_exact(group.letters)
                .map(|block| block[group.letters - 1])
                .collect()
        });
        let blocks = Blocks {
            prompt,
            digests: Rc::clone(digests),
            group,
            naming,
        };
        (blocks, number as u32)
    }

    fn store(&mut self, step: &Step) -> BlockEvent {
        let &Step::Store {
            holder,
            prompt,
            from,
            count,
            tier,
            group,
            naming,
            oddity,
        } = step
        else {
            unreachable!("called for stores only");
        };
        let odd_size = oddity == Oddity::OtherBlockSize;
        let (blocks, number) = self.blocks(prompt, group, naming, odd_size);
        let foreign = self.blocks(prompt + 1, group, naming, odd_size).0;
        let engine = self.engines.entry(holder).or_default();
        let from = match from {
            From::Root => 0,
            From::At(percent) => blocks.len() * usize::from(percent) / 256,
            From::Held => (0..blocks.len())
                .take_while(|&block| {
                    let name = blocks.name(holder, engine, block);
                    engine.held.contains(&(name, number))
                })
                .count(),
        };
        let to = blocks.len().min(from + count);
        let names: Vec<u64> = (from..to)
            .map(|block| blocks.name(holder, engine, block))
            .collect();
        engine.held.extend(names.iter().map(|&name| (name, number)));
        let namer = match oddity {
            Oddity::ForeignParent if foreign.len() >= from => &foreign,
            _ => &blocks,
        };
        let parent = from
            .checked_sub(1)
            .map(|block| EngineBlockHash(namer.name(holder, engine, block)));
        let mut stored = stored(&blocks, from..to, tier, number);
        stored.parent = parent;
        stored.hashes = names.into_iter().map(EngineBlockHash).collect();
        distort(&mut stored, oddity);
        BlockEvent::Stored(stored)
    }

    fn remove(&mut self, step: &Step) -> BlockEvent {
        let &Step::Remove {
            holder,
            prompt,
            from,
            count,
            order,
            tier,
            group,
            naming,
        } = step
        else {
            unreachable!("called for removals only");
        };
        let (blocks, number) = self.blocks(prompt, group, naming, false);
        let engine = self.engines.entry(holder).or_default();
        let len = blocks.len();
        let from = match order {
            // An engine evicts from the end of what it holds.
            Order::TailFirst => {
                let held = |&block: &usize| {
                    let name = blocks.name(holder, engine, block);
                    engine.held.contains(&(name, number))
                };
                (0..len).take_while(held).count().saturating_sub(count)
            }
            _ => len * usize::from(from) / 256,
        };
        let to = len.min(from + count);
        let mut hashes: Vec<u64> = (from..to)
            .map(|block| blocks.name(holder, engine, block))
            .collect();
        match order {
            Order::TailFirst => hashes.reverse(),
            Order::HeadFirst => {}
            Order::Shuffled => hashes.sort_by_key(digest),
        }
        for &name in &hashes {
            engine.held.remove(&(name, number));
        }
        BlockEvent::Removed(RemovedBlocks {
            hashes: hashes.into_iter().map(EngineBlockHash).collect(),
            tier,
            group: number,
        })
    }
}

fn stored(blocks: &Blocks<'_>, range: std::ops::Range<usize>, tier: Tier, group: u32) -> StoredBlocks {
    let Blocks {
        prompt, group: of, ..
    } = blocks;
    let keys = |block: usize| {
        let adapter = (prompt.lora == 1).then_some(ADAPTER);
        let salt = (prompt.salted && block == 0).then_some(SALT);
        let keys = adapter.into_iter().chain(salt);
        keys.map(|key| ExtraKey::Text(key.into())).collect()
    };
    StoredBlocks {
        hashes: Vec::new(),
        parent: None,
        tokens: tokens(&prompt.letters[range.start * of.letters..range.end * of.letters]),
        block_size: (of.letters * LETTER) as u32,
        tier,
        lora: match prompt.lora {
            0 => None,
            1 => Some(Lora::Name(ADAPTER.into())),
            _ => Some(Lora::Id(7)),
        },
        extra_keys: range.map(keys).collect(),
        group,
        attention: of.attention,
    }
}

fn distort(stored: &mut StoredBlocks, oddity: Oddity) {
    let plain = stored.extra_keys.iter().all(Vec::is_empty);
    if plain {
        stored.extra_keys.clear();
    }
    let count = stored.hashes.len();
    match oddity {
        Oddity::None | Oddity::OtherBlockSize | Oddity::ForeignParent => {}
        Oddity::OtherAttention => stored.attention = Attention::Window { tokens: 77 },
        Oddity::UnknownAttention => stored.attention = Attention::Unknown,
        Oddity::OtherGroup => stored.group = 9,
        Oddity::MissingToken => drop(stored.tokens.pop()),
        Oddity::MissingKeys => stored.extra_keys = vec![Vec::new(); count + 1],
        Oddity::Image => {
            stored.extra_keys.resize(count, Vec::new());
            if let Some(keys) = stored.extra_keys.get_mut(count / 2) {
                keys.push(ExtraKey::Bytes([1, 2][..].into()));
                keys.push(ExtraKey::Int(3));
            }
        }
        Oddity::RepeatedName => {
            if count > 1 {
                stored.hashes[count - 1] = stored.hashes[0];
            }
        }
    }
}

pub(crate) fn tokens(letters: &[u8]) -> Vec<u32> {
    letters
        .iter()
        .flat_map(|&letter| [u32::from(letter), 1])
        .collect()
}

/// Returns the query of a request with this prompt. `None` for an adapter that has no name.
pub(crate) fn queried(prompt: &Prompt) -> Option<Asked> {
    (prompt.lora < 2).then(|| Asked {
        tokens: tokens(&prompt.letters),
        lora: (prompt.lora == 1).then(|| ADAPTER.to_owned()),
        salt: prompt.salted.then(|| SALT.to_owned()),
    })
}

fn digest(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}
