//! Scripts: what a small fleet of engines does, in a form that shrinks well. `engines.rs` makes events of them.

use kv_index::Holder;
use proptest::collection::vec;
use proptest::prelude::*;
use routing::{Attention, DpRank, Tier, WorkerId};

/// Adapters of prompts: a name, or a number where the engine gives none.
pub(crate) const LORAS: usize = 3;

/// Tokens are made of letters, each of them this many tokens.
pub(crate) const LETTER: usize = 2;

/// A whole run: who there is, what is talked about, what happens.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) workers: u32,
    /// The KV-cache groups of every engine's model.
    pub(crate) groups: Vec<Group>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    /// Letters a block.
    pub(crate) letters: usize,
    pub(crate) attention: Attention,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) letters: Vec<u8>,
    /// Number of the adapter, below [`LORAS`]; 0 for the base model.
    pub(crate) lora: usize,
    pub(crate) salted: bool,
}

/// Naming of blocks by an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Naming {
    /// Names by content: all engines agree.
    Agreed,
    /// Names by content, in a second way.
    Twin,
    /// Names by content, differently at every holder.
    Own,
    /// Small numbers, counted upwards by every holder since it was last emptied.
    Counted,
    /// Names by depth only: one name for many contents.
    Sloppy,
}

/// The block that a store goes on from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From {
    Root,
    /// The deepest of the prompt's blocks that the engine holds without a gap.
    Held,
    /// Somewhere: mostly unknown.
    At(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    TailFirst,
    HeadFirst,
    Shuffled,
}

/// Irregularity of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Oddity {
    None,
    OtherBlockSize,
    OtherAttention,
    UnknownAttention,
    OtherGroup,
    MissingToken,
    MissingKeys,
    /// An image in one of the blocks.
    Image,
    /// The last block has the name of the first.
    RepeatedName,
    /// The parent is named as another prompt's block.
    ForeignParent,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Store {
        holder: Holder,
        prompt: usize,
        from: From,
        count: usize,
        tier: Tier,
        group: usize,
        naming: Naming,
        oddity: Oddity,
    },
    Remove {
        holder: Holder,
        prompt: usize,
        from: u8,
        count: usize,
        order: Order,
        tier: Option<Tier>,
        group: usize,
        naming: Naming,
    },
    Clear(Holder),
    RemoveWorker(WorkerId),
}

/// Distribution of scripts.
#[derive(Debug, Clone)]
pub(crate) struct Mix {
    pub(crate) workers: u32,
    pub(crate) ranks: u16,
    pub(crate) steps: std::ops::Range<usize>,
    /// Maximum number of prompts.
    pub(crate) prompts: usize,
    /// The longest prompt, in letters.
    pub(crate) letters: usize,
    /// Distinct letters: few make for prompts that meet again by chance.
    pub(crate) alphabet: u8,
    /// Several groups, or one that is not fully attended.
    pub(crate) hybrid: bool,
    pub(crate) tiers: bool,
    /// Engines that contradict themselves: names used twice, events that do not fit.
    pub(crate) odd: bool,
    /// Weight of agreement on names between engines, against 10 of the opposite.
    pub(crate) agreed: u32,
}

pub(crate) fn script(mix: &Mix) -> impl Strategy<Value = Script> + use<> {
    let workers = mix.workers;
    let parts = (groups(mix), prompts(mix), vec(step(mix), mix.steps.clone()));
    parts.prop_map(move |(groups, prompts, steps)| Script {
        workers,
        groups,
        prompts,
        steps,
    })
}

fn groups(mix: &Mix) -> impl Strategy<Value = Vec<Group>> + use<> {
    let full = |letters| Group {
        letters,
        attention: Attention::Full,
    };
    let single = (1..4_usize).prop_map(move |letters| vec![full(letters)]);
    let attention = prop_oneof![
        3 => Just(Attention::Full),
        3 => (2..20_u32).prop_map(|tokens| Attention::Window { tokens }),
        2 => Just(Attention::State),
    ];
    let group = (1..4_usize, attention).prop_map(|(letters, attention)| Group { letters, attention });
    let several = vec(group, 1..4);
    if mix.hybrid {
        several.boxed()
    } else {
        single.boxed()
    }
}

/// Returns prompts, each of which may begin like an earlier one and diverge anywhere.
fn prompts(mix: &Mix) -> impl Strategy<Value = Vec<Prompt>> + use<> {
    let namespace = prop_oneof![6 => Just((0, false)), 2 => (0..LORAS, any::<bool>())];
    let branch = (
        any::<prop::sample::Index>(),
        0..=100_usize,
        vec(0..mix.alphabet, 1..=mix.letters),
        namespace,
    );
    let longest = mix.letters;
    vec(branch, 1..=mix.prompts).prop_map(move |branches| {
        let mut prompts: Vec<Prompt> = Vec::new();
        for (at, (like, kept, letters, (lora, salted))) in branches.into_iter().enumerate() {
            let mut prompt = match at {
                0 => Vec::new(),
                _ => prompts[like.index(at)].letters.clone(),
            };
            prompt.truncate(prompt.len() * kept / 100);
            prompt.extend(letters);
            prompt.truncate(longest);
            prompts.push(Prompt {
                letters: prompt,
                lora,
                salted,
            });
        }
        prompts
    })
}

fn step(mix: &Mix) -> impl Strategy<Value = Step> + use<> {
    let holder = || {
        (0..mix.workers, 0..mix.ranks).prop_map(|(worker, rank)| Holder {
            worker: WorkerId(worker),
            rank: DpRank(rank),
        })
    };
    let from = prop_oneof![5 => Just(From::Root), 3 => Just(From::Held), 2 => any::<u8>().prop_map(From::At)];
    let store = (
        holder(),
        0..mix.prompts,
        from,
        count(mix),
        tier(mix),
        0..3_usize,
        naming(mix),
        oddity(mix),
    );
    let store = store.prop_map(
        |(holder, prompt, from, count, tier, group, naming, oddity)| Step::Store {
            holder,
            prompt,
            from,
            count,
            tier,
            group,
            naming,
            oddity,
        },
    );
    let order = prop_oneof![
        Just(Order::TailFirst),
        Just(Order::HeadFirst),
        Just(Order::Shuffled)
    ];
    let some_tier = prop_oneof![3 => Just(None), 2 => tier(mix).prop_map(Some)];
    let remove = (
        holder(),
        0..mix.prompts,
        any::<u8>(),
        count(mix),
        order,
        some_tier,
        0..3_usize,
        naming(mix),
    );
    let remove = remove.prop_map(
        |(holder, prompt, from, count, order, tier, group, naming)| Step::Remove {
            holder,
            prompt,
            from,
            count,
            order,
            tier,
            group,
            naming,
        },
    );
    prop_oneof![
        12 => store,
        8 => remove,
        1 => holder().prop_map(Step::Clear),
        1 => (0..mix.workers).prop_map(|worker| Step::RemoveWorker(WorkerId(worker))),
    ]
}

fn count(mix: &Mix) -> impl Strategy<Value = usize> + use<> {
    prop_oneof![2 => Just(1), 2 => 1..=mix.letters, 1 => Just(mix.letters)]
}

fn tier(mix: &Mix) -> impl Strategy<Value = Tier> + use<> {
    let slower = u32::from(mix.tiers);
    prop_oneof![
        5 => Just(Tier::Device),
        2 * slower => Just(Tier::Host),
        slower => Just(Tier::Disk),
        slower => Just(Tier::Shared),
    ]
}

fn naming(mix: &Mix) -> impl Strategy<Value = Naming> + use<> {
    prop_oneof![
        mix.agreed => Just(Naming::Agreed),
        2 => Just(Naming::Twin),
        4 => Just(Naming::Own),
        4 => Just(Naming::Counted),
        u32::from(mix.odd) => Just(Naming::Sloppy),
    ]
}

fn oddity(mix: &Mix) -> impl Strategy<Value = Oddity> + use<> {
    let odd = prop_oneof![
        Just(Oddity::OtherBlockSize),
        Just(Oddity::OtherAttention),
        Just(Oddity::UnknownAttention),
        Just(Oddity::OtherGroup),
        Just(Oddity::MissingToken),
        Just(Oddity::MissingKeys),
        Just(Oddity::Image),
        Just(Oddity::RepeatedName),
        Just(Oddity::ForeignParent),
    ];
    prop_oneof![12 => Just(Oddity::None), 2 * u32::from(mix.odd) => odd]
}
