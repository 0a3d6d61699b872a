//! Synthetic decision inputs: a request and a fleet in a policy's feature layout, the same in every run.
//!
//! Numbers are drawn by the unit of their feature, so new features of the catalogue are covered too.

use std::collections::BTreeMap;
use std::sync::Arc;

use routing::{
    CANDIDATE_CATALOGUE, CandidateFeature, DecisionInput, DecisionQueries, FeaturePlan, Offer, Phase,
    REQUEST_CATALOGUE, RequestFacts, RequestFeature, Role, SplitMix64, Tier, Worker, WorkerId, WorkerSpec,
};

/// One number in this many is unknown, in variants with unknown numbers.
const UNKNOWN_SHARE: u64 = 8;
/// Factor of an overloaded fleet's load.
const OVERLOAD: f64 = 1_000.0;
/// Tokens of the prompt.
const PROMPT: u32 = 8_192;
/// Tokens of a system prompt that every worker holds.
const SHARED_PREFIX: u32 = 6_144;
/// Remaining hold time of a request in a fleet that holds none.
const HOLD_LEFT_MS: f64 = 10_000.0;
/// Tokens per block.
const BLOCK: u32 = 16;
/// Values that only a broken router would send.
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

/// Source of the numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum NumberSource {
    /// Typical values of a busy fleet.
    Usual,
    /// Typical values, an eighth of them unknown.
    SomeUnknown,
    /// One value for all features except those that define the valid answers.
    All(f64),
    /// A fleet without load and without cached blocks.
    Idle,
    /// A thousand times a busy fleet's load.
    Overloaded,
    /// A busy fleet in which every worker holds the same prefix.
    SharedPrefix,
    /// A busy fleet and a prompt whose tokens are unknown: no matches in columns or queries.
    UnknownPrompt,
    /// Drawn from [`GARBAGE`].
    Garbage,
}

impl NumberSource {
    /// Returns `true` if the prompt's tokens are known, so that queries have matches.
    fn knows_prompt(self) -> bool {
        match self {
            Self::UnknownPrompt => false,
            Self::All(number) => !number.is_nan(),
            _ => true,
        }
    }
}

/// Composition of a synthetic fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FleetRoles {
    /// Roles as in practice: a third each if the policy places pairs, else all mixed.
    AsUsual,
    /// Alternating roles, with one leg requested.
    Of(&'static [Role]),
    /// Alternating roles, with both legs requested, and a flag if one decode worker may do both.
    Pairs(&'static [Role], bool),
}

/// Recipe of an input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct InputRecipe {
    pub(crate) candidates: usize,
    pub(crate) numbers: NumberSource,
    pub(crate) roles: FleetRoles,
    pub(crate) phase: Phase,
    pub(crate) attempt: u32,
    /// The client named a session.
    pub(crate) session: bool,
}

/// A synthetic decision input in the layout of one plan.
pub struct SyntheticCall {
    request: RequestFacts,
    ids: Vec<WorkerId>,
    roles: Vec<Role>,
    numbers: Vec<f64>,
    queries: Arc<dyn DecisionQueries>,
    /// Set for a pair if one decode worker may do both.
    alone: Option<bool>,
}

impl SyntheticCall {
    /// Returns a busy fleet of `candidates` (at least one), with every number known.
    #[must_use]
    pub fn usual(plan: &FeaturePlan, candidates: usize) -> Self {
        Self::new(
            plan,
            InputRecipe {
                candidates: candidates.max(1),
                ..InputRecipe::USUAL
            },
            1,
        )
    }

    /// Builds an input from a recipe; `seed` numbers the request and selects the numbers.
    pub(crate) fn new(plan: &FeaturePlan, recipe: InputRecipe, seed: u64) -> Self {
        let (turn, alone): (&[Role], _) = match recipe.roles {
            FleetRoles::AsUsual if plan.pairs() => (&[Role::Mixed, Role::Prefill, Role::Decode], Some(true)),
            FleetRoles::AsUsual => (&[Role::Mixed], None),
            FleetRoles::Of(turn) => (turn, None),
            FleetRoles::Pairs(turn, alone) => (turn, Some(alone)),
        };
        let roles: Vec<Role> = turn.iter().copied().cycle().take(recipe.candidates).collect();
        let mut source = NumberGenerator {
            numbers: recipe.numbers,
            random: SplitMix64::of_decision(seed, 0),
        };
        let held: Vec<u32> = roles.iter().map(|_| source.held()).collect();
        let mut numbers = Vec::new();
        numbers.extend(plan.request().iter().map(|feature| match feature {
            // Defines the valid answers, so it is always exact.
            RequestFeature::DecodeAlone => f64::from(u8::from(alone != Some(false))),
            // An idle fleet has all its workers, and a new request may still be held.
            RequestFeature::PoolWorkers if recipe.numbers == NumberSource::Idle => recipe.candidates as f64,
            RequestFeature::HoldLeftMs if recipe.numbers == NumberSource::Idle => HOLD_LEFT_MS,
            RequestFeature::PromptTokens => source.of_prompt(PROMPT),
            RequestFeature::PrefixKey(tokens) => source.of_prompt(mixed(*tokens as usize)),
            RequestFeature::PrefixBest => source.of_prompt(held.iter().max().copied().unwrap_or(0)),
            feature => source.draw(request_unit(*feature)),
        }));
        for (row, role) in roles.iter().enumerate() {
            numbers.extend(plan.candidate().iter().map(|feature| match feature {
                CandidateFeature::Role => role.number(),
                CandidateFeature::Weight => source.or(1.0 + (row % 2) as f64),
                CandidateFeature::PrefixDevice
                | CandidateFeature::PrefixHost
                | CandidateFeature::PrefixAny => source.of_prompt(held[row]),
                CandidateFeature::NameHash => source.or(f64::from(mixed(row))),
                CandidateFeature::Unknown => f64::NAN,
                feature => source.draw(candidate_unit(feature)),
            }));
        }
        Self {
            request: RequestFacts {
                session: recipe.session.then_some(seed),
                phase: recipe.phase,
                attempt: recipe.attempt,
                now_us: seed * 1000,
                ..RequestFacts::of_seq(seed)
            },
            ids: (0..).map(WorkerId).take(recipe.candidates).collect(),
            queries: Arc::new(SyntheticInput {
                ids: (0..).map(WorkerId).take(recipe.candidates).collect(),
                roles: roles.clone(),
                held: recipe.numbers.knows_prompt().then_some(held),
            }),
            roles,
            numbers,
            alone,
        }
    }

    /// Returns the request with that number and a session of its own.
    #[must_use]
    pub fn request(&self, seq: u64) -> RequestFacts {
        RequestFacts {
            seq,
            session: self.request.session.map(|_| seq),
            now_us: seq * 1000,
            ..self.request
        }
    }

    /// Returns the policy's input for that request.
    #[must_use]
    pub fn input<'a>(&'a self, request: &'a RequestFacts) -> DecisionInput<'a> {
        DecisionInput {
            request,
            ids: &self.ids,
            numbers: &self.numbers,
            queries: &self.queries,
        }
    }

    /// Returns the data that the answer is checked against.
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

impl InputRecipe {
    /// A request with a session, in a busy fleet of sixteen.
    pub(crate) const USUAL: Self = Self {
        candidates: 16,
        numbers: NumberSource::Usual,
        roles: FleetRoles::AsUsual,
        phase: Phase::Mixed,
        attempt: 0,
        session: true,
    };
}

/// Generator of numbers.
struct NumberGenerator {
    numbers: NumberSource,
    random: SplitMix64,
}

impl NumberGenerator {
    /// Returns a number of that unit.
    fn draw(&mut self, unit: &str) -> f64 {
        let share = (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let usual = (share * (most(unit) + 1.0)).floor();
        match self.numbers {
            NumberSource::Idle => 0.0,
            NumberSource::Overloaded => usual * OVERLOAD,
            _ => self.or(usual),
        }
    }

    /// Returns `usual` for features other than load, unless a fixed value is set.
    fn or(&mut self, usual: f64) -> f64 {
        match self.numbers {
            NumberSource::Usual
            | NumberSource::Idle
            | NumberSource::Overloaded
            | NumberSource::SharedPrefix
            | NumberSource::UnknownPrompt => usual,
            NumberSource::SomeUnknown if self.random.next().is_multiple_of(UNKNOWN_SHARE) => f64::NAN,
            NumberSource::SomeUnknown => usual,
            NumberSource::All(number) => number,
            NumberSource::Garbage => GARBAGE[self.random.next() as usize % GARBAGE.len()],
        }
    }

    /// Returns a number of the prompt's tokens, unless a fixed value is set. NaN if the tokens are unknown.
    fn of_prompt(&mut self, usual: u32) -> f64 {
        match self.numbers.knows_prompt() {
            true => self.or(usual.into()),
            false => f64::NAN,
        }
    }

    /// Returns the prompt tokens that a worker holds.
    fn held(&mut self) -> u32 {
        match self.numbers {
            NumberSource::SharedPrefix => SHARED_PREFIX,
            NumberSource::All(_) | NumberSource::Idle | NumberSource::Garbage => 0,
            _ => (self.random.next() % u64::from(PROMPT / BLOCK)) as u32 * BLOCK,
        }
    }
}

/// Returns a distinct hash of a row or a length (Knuth's multiplicative one).
fn mixed(number: usize) -> u32 {
    (number as u32).wrapping_add(1).wrapping_mul(0x9e37_79b1)
}

/// Returns the maximum of a unit in a busy fleet.
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

/// Host queries of a synthetic fleet.
struct SyntheticInput {
    ids: Vec<WorkerId>,
    roles: Vec<Role>,
    /// Prompt tokens that each worker holds. `None` if the prompt's tokens are unknown.
    held: Option<Vec<u32>>,
}

/// Returns a worker of a synthetic fleet.
pub(crate) fn worker(id: WorkerId, role: Role) -> Arc<Worker> {
    let spec = WorkerSpec {
        role,
        labels: BTreeMap::from([("zone".into(), "a".into())]),
        ..WorkerSpec::mixed(format!("worker-{}", id.0), format!("http://worker-{}", id.0))
    };
    Arc::new(Worker::new(id, spec))
}

impl DecisionQueries for SyntheticInput {
    fn candidates(&self) -> &[WorkerId] {
        &self.ids
    }

    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        Some(worker(id, *self.roles.get(id.0 as usize)?))
    }

    fn matched(&self, _: Tier) -> Vec<u32> {
        self.held.clone().unwrap_or_default()
    }

    fn holders(&self, tokens: u32) -> u32 {
        let held = self.held.iter().flatten();
        held.filter(|held| **held >= tokens).count() as u32
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
