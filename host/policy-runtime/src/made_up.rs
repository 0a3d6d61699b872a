//! Made-up decisions: a request and a fleet, laid out as a policy asks, the same in every run.
//!
//! Numbers are drawn by the unit of their feature, so that a feature added to the catalogue is made up too.

use std::collections::BTreeMap;
use std::sync::Arc;

use routing::{
    CANDIDATE_CATALOGUE, CandidateFeature, DecisionInput, DecisionQueries, FeaturePlan, Offer, Phase,
    REQUEST_CATALOGUE, RequestFacts, RequestFeature, Role, RunNumber, SplitMix64, Tier, Worker, WorkerId,
    WorkerSpec,
};

/// One number in this many is unknown, where some are.
const UNKNOWN_SHARE: u64 = 8;
/// How much more than a busy fleet an overloaded one has to do.
const OVERLOAD: f64 = 1_000.0;
/// Tokens of the prompt.
const PROMPT: u32 = 8_192;
/// Tokens of a system prompt that every worker holds.
const SHARED_PREFIX: u32 = 6_144;
/// How long a request may be held in a fleet that holds none.
const HOLD_LEFT_MS: f64 = 10_000.0;
/// Tokens of a block.
const BLOCK: u32 = 16;
/// What no router would say, and a broken one might.
const GARBAGE: [f64; 8] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    0.0,
    -0.0,
    -1.0,
    f64::MAX,
    f64::MIN_POSITIVE,
];

/// Where the numbers come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Numbers {
    /// A busy fleet's: whatever could be.
    Usual,
    /// The same, an eighth of them unknown.
    SomeUnknown,
    /// All of them this one, but for what decides which answer is right.
    All(f64),
    /// A fleet without load, that holds nothing.
    Idle,
    /// A thousand times a busy fleet's load.
    Overloaded,
    /// A busy fleet's, of which every worker holds the same prefix.
    SharedPrefix,
    /// Drawn from [`GARBAGE`].
    Garbage,
}

/// What a made-up fleet consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Roles {
    /// As the policy is asked in practice: a third each where it places pairs, else all mixed.
    AsAsked,
    /// By turns, where the policy is asked for one leg.
    Of(&'static [Role]),
    /// The same, where it is asked for both at once; whether a decode worker may do it all.
    Pairs(&'static [Role], bool),
}

/// What to make up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Recipe {
    pub(crate) candidates: usize,
    pub(crate) numbers: Numbers,
    pub(crate) roles: Roles,
    pub(crate) phase: Phase,
    pub(crate) attempt: u32,
    /// Whether the client named a session.
    pub(crate) session: bool,
}

/// A made-up decision, laid out for one plan.
pub struct MadeUpCall {
    request: RequestFacts,
    ids: Vec<WorkerId>,
    roles: Vec<Role>,
    numbers: Vec<f64>,
    queries: Arc<dyn DecisionQueries>,
    /// Whether a pair is asked for, and if so whether a decode worker may do it all.
    alone: Option<bool>,
}

impl MadeUpCall {
    /// A busy fleet of so many candidates, at least one, with every number known.
    #[must_use]
    pub fn usual(plan: &FeaturePlan, candidates: usize) -> Self {
        Self::new(
            plan,
            Recipe {
                candidates: candidates.max(1),
                ..Recipe::USUAL
            },
            1,
        )
    }

    /// Lays out a recipe; `seed` numbers the request and picks the numbers.
    pub(crate) fn new(plan: &FeaturePlan, recipe: Recipe, seed: u64) -> Self {
        let (turn, alone): (&[Role], _) = match recipe.roles {
            Roles::AsAsked if plan.pairs() => (&[Role::Mixed, Role::Prefill, Role::Decode], Some(true)),
            Roles::AsAsked => (&[Role::Mixed], None),
            Roles::Of(turn) => (turn, None),
            Roles::Pairs(turn, alone) => (turn, Some(alone)),
        };
        let roles: Vec<Role> = turn.iter().copied().cycle().take(recipe.candidates).collect();
        let mut source = Source {
            numbers: recipe.numbers,
            random: SplitMix64::of_decision(seed, 0),
        };
        let held: Vec<u32> = roles.iter().map(|_| source.held()).collect();
        let mut numbers = Vec::new();
        numbers.extend(plan.request().iter().map(|feature| match feature {
            // Decides which answers are right, so it is never anything else.
            RequestFeature::DecodeAlone => f64::from(u8::from(alone != Some(false))),
            // An idle fleet has all its workers, and a request that has just come may still be held.
            RequestFeature::PoolWorkers if recipe.numbers == Numbers::Idle => recipe.candidates as f64,
            RequestFeature::HoldLeftMs if recipe.numbers == Numbers::Idle => HOLD_LEFT_MS,
            RequestFeature::PromptTokens => source.or(f64::from(PROMPT)),
            RequestFeature::PrefixKey(tokens) => source.or(mixed(*tokens as usize).into()),
            RequestFeature::PrefixBest => source.or(held.iter().max().copied().unwrap_or(0).into()),
            feature => source.draw(request_unit(*feature)),
        }));
        for (row, role) in roles.iter().enumerate() {
            numbers.extend(plan.candidate().iter().map(|feature| match feature {
                CandidateFeature::Role => role.number(),
                CandidateFeature::Weight => source.or(1.0 + (row % 2) as f64),
                CandidateFeature::PrefixDevice
                | CandidateFeature::PrefixHost
                | CandidateFeature::PrefixAny => source.or(f64::from(held[row])),
                CandidateFeature::NameHash => source.or(f64::from(mixed(row))),
                CandidateFeature::Unknown => f64::NAN,
                feature => source.draw(candidate_unit(feature)),
            }));
        }
        Self {
            request: RequestFacts {
                seq: seed,
                run: RunNumber::default(),
                session: recipe.session.then_some(seed),
                phase: recipe.phase,
                attempt: recipe.attempt,
                now_us: seed * 1000,
            },
            ids: (0..).map(WorkerId).take(recipe.candidates).collect(),
            queries: Arc::new(MadeUp {
                ids: (0..).map(WorkerId).take(recipe.candidates).collect(),
                roles: roles.clone(),
                held,
            }),
            roles,
            numbers,
            alone,
        }
    }

    /// What is asked, as the request of that number and of a session of its own.
    #[must_use]
    pub fn request(&self, seq: u64) -> RequestFacts {
        RequestFacts {
            seq,
            session: self.request.session.map(|_| seq),
            now_us: seq * 1000,
            ..self.request
        }
    }

    /// What a policy is given, for that request.
    #[must_use]
    pub fn input<'a>(&'a self, request: &'a RequestFacts) -> DecisionInput<'a> {
        DecisionInput {
            request,
            ids: &self.ids,
            numbers: &self.numbers,
            queries: &self.queries,
        }
    }

    /// What its answer is checked against.
    #[must_use]
    pub fn offer(&self) -> Offer<'_> {
        match self.alone {
            Some(alone) => Offer::Pair {
                roles: &self.roles,
                alone,
            },
            None => Offer::One {
                candidates: self.ids.len(),
            },
        }
    }
}

impl Recipe {
    /// A request with a session, in a busy fleet of sixteen.
    pub(crate) const USUAL: Self = Self {
        candidates: 16,
        numbers: Numbers::Usual,
        roles: Roles::AsAsked,
        phase: Phase::Mixed,
        attempt: 0,
        session: true,
    };
}

/// Draws numbers.
struct Source {
    numbers: Numbers,
    random: SplitMix64,
}

impl Source {
    /// A number of that unit.
    fn draw(&mut self, unit: &str) -> f64 {
        let share = (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let usual = (share * (most(unit) + 1.0)).floor();
        match self.numbers {
            Numbers::Idle => 0.0,
            Numbers::Overloaded => usual * OVERLOAD,
            _ => self.or(usual),
        }
    }

    /// `usual` for what is no load, unless something else is asked for.
    fn or(&mut self, usual: f64) -> f64 {
        match self.numbers {
            Numbers::Usual | Numbers::Idle | Numbers::Overloaded | Numbers::SharedPrefix => usual,
            Numbers::SomeUnknown if self.random.next().is_multiple_of(UNKNOWN_SHARE) => f64::NAN,
            Numbers::SomeUnknown => usual,
            Numbers::All(number) => number,
            Numbers::Garbage => GARBAGE[self.random.next() as usize % GARBAGE.len()],
        }
    }

    /// Tokens of the prompt that a worker holds.
    fn held(&mut self) -> u32 {
        match self.numbers {
            Numbers::SharedPrefix => SHARED_PREFIX,
            Numbers::All(_) | Numbers::Idle | Numbers::Garbage => 0,
            _ => (self.random.next() % u64::from(PROMPT / BLOCK)) as u32 * BLOCK,
        }
    }
}

/// A hash of a row or a length (Knuth's multiplicative one), each its own.
fn mixed(number: usize) -> u32 {
    (number as u32).wrapping_add(1).wrapping_mul(0x9e37_79b1)
}

/// The most that a busy fleet has of a unit.
fn most(unit: &str) -> f64 {
    match unit {
        "0 or 1" => 1.0,
        "requests" => 32.0,
        "tokens" => 16_384.0,
        "bytes" => 65_536.0,
        "blocks" => 100_000.0,
        "milliseconds" => 2_000.0,
        _ => 4.0,
    }
}

fn request_unit(feature: RequestFeature) -> &'static str {
    let mut catalogue = REQUEST_CATALOGUE.iter();
    catalogue
        .find(|(known, _)| *known == feature)
        .map_or("", |(_, doc)| doc.unit)
}

fn candidate_unit(feature: &CandidateFeature) -> &'static str {
    let mut catalogue = CANDIDATE_CATALOGUE.iter();
    catalogue
        .find(|(known, _)| known == feature)
        .map_or("", |(_, doc)| doc.unit)
}

/// Answers as a made-up fleet would.
struct MadeUp {
    ids: Vec<WorkerId>,
    roles: Vec<Role>,
    held: Vec<u32>,
}

/// A worker of a made-up fleet.
pub(crate) fn worker(id: WorkerId, role: Role) -> Arc<Worker> {
    let spec = WorkerSpec {
        name: format!("worker-{}", id.0).into(),
        url: format!("http://worker-{}", id.0).into(),
        role,
        models: vec![],
        weight: 1.0,
        labels: BTreeMap::from([("zone".into(), "a".into())]),
        rank: None,
        bootstrap: None,
    };
    Arc::new(Worker::new(id, spec))
}

impl DecisionQueries for MadeUp {
    fn candidates(&self) -> &[WorkerId] {
        &self.ids
    }

    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        Some(worker(id, *self.roles.get(id.0 as usize)?))
    }

    fn matched(&self, _: Tier) -> Vec<u32> {
        self.held.clone()
    }

    fn holders(&self, tokens: u32) -> u32 {
        self.held.iter().filter(|held| **held >= tokens).count() as u32
    }

    fn header(&self, _: &str) -> Option<String> {
        None
    }

    fn model(&self) -> &str {
        "made-up"
    }

    fn path(&self) -> &str {
        "/v1/chat/completions"
    }
}
