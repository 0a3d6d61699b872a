//! The index against a model that keeps whole prompts and knows nothing of hashes, slots or sweeps.

mod chains;

use std::collections::{BTreeMap, BTreeSet};

use chains::*;
use kv_index::{Holder, PrefixQuery};
use proptest::collection::vec;
use proptest::prelude::*;
use routing::{BlockEvent, EngineBlockHash, ExtraKey, Lora, RemovedBlocks, StoredBlocks, Tier, WorkerId};

const TIERS: [Tier; 4] = [Tier::Device, Tier::Host, Tier::Disk, Tier::Shared];
const WORKERS: u32 = 3;
const LORAS: [Option<&str>; 2] = [None, Some("ad")];
const SALTS: [Option<&str>; 2] = [None, Some("salt")];

/// What a block stands for: the prompt up to its end, its adapter, its salt.
type Content = (String, usize, usize);

/// One engine hash: its content and tiers; none where it was used for two contents.
type Held = Option<(Content, BTreeSet<Tier>)>;

#[derive(Debug, Clone)]
struct Chain {
    prompt: String,
    lora: usize,
    salt: usize,
    /// Engines may name a content in two ways; the third way is the same for many contents.
    naming: u8,
}

#[derive(Debug, Clone)]
enum Change {
    Store {
        holder: Holder,
        chain: Chain,
        parent: usize,
        tier: Tier,
    },
    Remove {
        holder: Holder,
        chain: Chain,
        tier: Option<Tier>,
    },
    Clear(Holder),
    RemoveWorker(u32),
}

impl Chain {
    fn engine_hash(&self, end: usize) -> EngineBlockHash {
        let Self {
            prompt,
            lora,
            salt,
            naming,
        } = self;
        match naming {
            2 => engine_hash(&format!("ambiguous{end}")),
            _ => engine_hash(&format!("{naming}/{lora}/{salt}/{}", &prompt[..end])),
        }
    }

    fn event(&self, parent: usize, tier: Tier) -> StoredBlocks {
        let ends = || parent + 1..=self.prompt.len();
        let keys = |end| {
            let salt = SALTS[self.salt].filter(|_| end == 1);
            LORAS[self.lora]
                .into_iter()
                .chain(salt)
                .map(|key| ExtraKey::Text(key.into()))
                .collect()
        };
        StoredBlocks {
            hashes: ends().map(|end| self.engine_hash(end)).collect(),
            parent: (parent > 0).then(|| self.engine_hash(parent)),
            lora: LORAS[self.lora].map(|name| Lora::Name(name.into())),
            extra_keys: ends().map(keys).collect(),
            tier,
            ..store(&self.prompt, parent)
        }
    }
}

#[derive(Debug, Default)]
struct Model {
    held: BTreeMap<Holder, BTreeMap<u64, Held>>,
}

impl Model {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Store {
                holder,
                chain,
                parent,
                tier,
            } => self.store(*holder, chain, *parent, *tier),
            Change::Remove { holder, chain, tier } => {
                let hash = chain.engine_hash(chain.prompt.len()).0;
                let Some(blocks) = self.held.get_mut(holder) else {
                    return;
                };
                if let Some(Some((_, tiers))) = blocks.get_mut(&hash) {
                    tiers.retain(|&held| tier.is_some_and(|tier| tier != held));
                    if tiers.is_empty() {
                        blocks.remove(&hash);
                    }
                }
            }
            Change::Clear(holder) => drop(self.held.remove(holder)),
            Change::RemoveWorker(worker) => self.held.retain(|holder, _| holder.worker != WorkerId(*worker)),
        }
    }

    fn store(&mut self, holder: Holder, chain: &Chain, parent: usize, tier: Tier) {
        let blocks = self.held.entry(holder).or_default();
        let above = match parent {
            0 => (String::new(), chain.lora, 0),
            _ => match blocks.get(&chain.engine_hash(parent).0) {
                Some(Some((content, _))) => content.clone(),
                _ => return,
            },
        };
        for end in parent + 1..=chain.prompt.len() {
            let salt = if parent == 0 { chain.salt } else { above.2 };
            let content = (above.0.clone() + &chain.prompt[parent..end], above.1, salt);
            // An ambiguous hash may put a block of one adapter below a parent of another: the parent's then counts.
            let held = blocks
                .entry(chain.engine_hash(end).0)
                .or_insert_with(|| Some((content.clone(), BTreeSet::new())));
            match held {
                Some((known, tiers)) if *known == content => {
                    tiers.insert(tier);
                }
                _ => *held = None,
            }
        }
    }

    fn depth(&self, holder: Holder, content: &Content, tiers: &[Tier]) -> u32 {
        let Some(blocks) = self.held.get(&holder) else {
            return 0;
        };
        let held = |end: &usize| {
            let wanted = (content.0[..*end].to_owned(), content.1, content.2);
            let mut all = blocks.values().flatten();
            all.any(|(known, on)| *known == wanted && on.iter().any(|tier| tiers.contains(tier)))
        };
        (1..=content.0.len()).take_while(held).count() as u32
    }
}

fn chain() -> impl Strategy<Value = Chain> {
    let naming = prop_oneof![20 => Just(0_u8), 4 => Just(1), 6 => Just(2)];
    ("[ab]{1,5}", 0..LORAS.len(), 0..SALTS.len(), naming).prop_map(|(prompt, lora, salt, naming)| Chain {
        prompt,
        lora,
        salt,
        naming,
    })
}

fn any_holder() -> impl Strategy<Value = Holder> {
    (0..WORKERS, 0..2_u16).prop_map(|(worker, rank)| holder(worker, rank))
}

fn any_tier() -> impl Strategy<Value = Tier> {
    prop_oneof![4 => Just(Tier::Device), 2 => Just(Tier::Host), 1 => Just(Tier::Disk), 1 => Just(Tier::Shared)]
}

fn change() -> impl Strategy<Value = Change> {
    let store = (
        any_holder(),
        chain(),
        any::<prop::sample::Index>(),
        any_tier(),
        any::<bool>(),
    );
    let store = store.prop_map(|(holder, chain, parent, tier, from_root)| {
        let parent = if from_root {
            0
        } else {
            parent.index(chain.prompt.len())
        };
        Change::Store {
            holder,
            parent,
            chain,
            tier,
        }
    });
    let remove = (any_holder(), chain(), proptest::option::of(any_tier()));
    prop_oneof![
        12 => store,
        8 => remove.prop_map(|(holder, chain, tier)| Change::Remove { holder, chain, tier }),
        1 => any_holder().prop_map(Change::Clear),
        1 => (0..WORKERS).prop_map(Change::RemoveWorker),
    ]
}

fn every_prompt(letters: usize) -> Vec<String> {
    (0..letters).fold(vec![String::new()], |prompts, _| {
        prompts
            .iter()
            .flat_map(|prompt| ["a", "b"].map(|letter| prompt.clone() + letter))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn equals_the_model_after_any_changes(changes in vec(change(), 1..60)) {
        let (index, mut model) = (index(), Model::default());
        for change in &changes {
            model.apply(change);
            match change {
                Change::Store { holder, chain, parent, tier } => {
                    index.apply(*holder, &BlockEvent::Stored(chain.event(*parent, *tier)));
                }
                Change::Remove { holder, chain, tier } => {
                    let hashes = vec![chain.engine_hash(chain.prompt.len())];
                    index.apply(*holder, &BlockEvent::Removed(RemovedBlocks { hashes, tier: *tier, group: 0 }));
                }
                Change::Clear(holder) => {
                    index.apply(*holder, &BlockEvent::Cleared);
                }
                Change::RemoveWorker(worker) => {
                    index.remove_worker(WorkerId(*worker));
                }
            }
        }
        let workers: Vec<WorkerId> = (0..WORKERS).map(WorkerId).collect();
        let mut out = Vec::new();
        for (prompt, lora, salt) in every_prompt(5).into_iter().flat_map(|prompt| {
            (0..4).map(move |mix| (prompt.clone(), mix / 2, mix % 2))
        }) {
            let tokens = tokens(&prompt);
            let query = PrefixQuery { tokens: &tokens, lora: LORAS[lora], cache_salt: SALTS[salt] };
            index.matches(&query, &workers, &mut out);
            let content = (prompt, lora, salt);
            for (worker, &found) in (0..).zip(&out) {
                let expected = [1, 2, 4].map(|tiers| {
                    (0..2).map(|rank| model.depth(holder(worker, rank), &content, &TIERS[..tiers])).max().unwrap()
                });
                prop_assert_eq!(blocks(found), expected, "worker {} of {:?}", worker, content);
            }
        }
        for worker in 0..WORKERS {
            let held: usize = (0..2).filter_map(|rank| model.held.get(&holder(worker, rank))).map(BTreeMap::len).sum();
            prop_assert_eq!(index.held_blocks(WorkerId(worker)), held as u64);
        }
    }
}
