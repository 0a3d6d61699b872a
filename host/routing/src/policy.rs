//! The seam between the router and whatever decides: three implementations today, WebAssembly components
//! (`policy-runtime`), pipelines of them (`pipeline/`) and the native fallback (`fallback.rs`).

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::block::Tier;
use crate::decision::Verdict;
use crate::event::EventListener;
use crate::feature::FeaturePlan;
use crate::id::WorkerId;
use crate::pipeline::Pipeline;
use crate::random::RunNumber;
use crate::transcript::Transcript;
use crate::worker::Worker;

/// Something that places requests.
pub trait Policy: Send + Sync + fmt::Debug {
    /// Its name in the configuration.
    fn name(&self) -> &str;

    /// The numbers it wants laid out.
    fn plan(&self) -> &FeaturePlan;

    /// Whether the prompt's tokens are needed for what may decide now.
    fn needs_tokens(&self) -> bool {
        self.plan().needs_tokens()
    }

    /// Whether the prefix index is to be asked for what may decide now; where it is not, its columns are NaN.
    fn needs_prefix(&self) -> bool {
        self.plan().needs_prefix()
    }

    /// Decides one request. Called on the request's own thread; never blocks.
    ///
    /// # Errors
    /// [`PolicyFault`] when the policy failed; the router then asks its fallback, and the client never knows.
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault>;

    /// The same, and what was asked on the way. One that asks nothing has nothing to tell.
    fn decide_noting(&self, input: &DecisionInput<'_>) -> (Result<Verdict, PolicyFault>, Transcript) {
        (self.decide(input), Transcript::default())
    }

    /// What it was made of; none where it is part of the router.
    fn origin(&self) -> Option<&Arc<Origin>> {
        None
    }

    /// What of it is told what happens to requests and workers. One that is made of others has theirs.
    fn listeners(&self) -> Vec<Arc<dyn EventListener>> {
        Vec::new()
    }

    /// Itself, where it can say how good each candidate is.
    fn scorer(&self) -> Option<&dyn Scorer> {
        None
    }

    /// Itself, where it is made of others.
    fn pipeline(&self) -> Option<&Pipeline> {
        None
    }
}

/// A policy that says how good each candidate is.
pub trait Scorer {
    /// Fills `scores`, which has a place for each candidate, in row order: any unit, higher is better, NaN for no opinion. Called
    /// as [`Policy::decide`] is.
    ///
    /// # Errors
    /// [`PolicyFault`] when it failed; what is in `scores` then means nothing.
    fn score(&self, input: &DecisionInput<'_>, scores: &mut [f64]) -> Result<(), PolicyFault>;

    /// The same, and what was asked on the way.
    fn score_noting(
        &self,
        input: &DecisionInput<'_>,
        scores: &mut [f64],
    ) -> (Result<(), PolicyFault>, Transcript);
}

/// What a policy was made of: where two have the same, the same input and the same answers to the same questions give the
/// same verdict, bit for bit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// SHA-256 of the component's bytes, in hexadecimal.
    pub sha256: Box<str>,
    /// Its parameters as a JSON object.
    pub params: Box<str>,
    /// The version it gives itself.
    pub version: Box<str>,
}

/// Which part of a request is being placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// One worker does prefill and decode.
    Mixed,
    /// Only the prefill leg.
    Prefill,
    /// Only the decode leg.
    Decode,
}

/// What every policy is told of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFacts {
    /// Counts requests from 1; seeds the policy's randomness together with `run` and `attempt`.
    pub seq: u64,
    /// The process that counts them.
    pub run: RunNumber,
    /// A stable hash of the client's session key.
    pub session: Option<u64>,
    /// What is being placed.
    pub phase: Phase,
    /// How often this request has been decided before.
    pub attempt: u32,
    /// Microseconds on a monotonic clock, frozen for the call.
    pub now_us: u64,
}

impl RequestFacts {
    /// Returns what the request's randomness begins from, besides `attempt`.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.run.seed(self.seq)
    }
}

/// Everything one decision is made from.
#[derive(Clone, Copy)]
pub struct DecisionInput<'a> {
    /// Of the request.
    pub request: &'a RequestFacts,
    /// One id a candidate; never empty.
    pub ids: &'a [WorkerId],
    /// The request's numbers, then one row a candidate, as [`FeaturePlan`] asked.
    pub numbers: &'a [f64],
    /// What can be asked besides. Shared, because a component's host functions outlive any borrow.
    pub queries: &'a Arc<dyn DecisionQueries>,
}

impl Phase {
    /// Its name in the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

impl fmt::Debug for DecisionInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionInput")
            .field("request", self.request)
            .field("ids", &self.ids)
            .field("numbers", &self.numbers)
            .finish_non_exhaustive()
    }
}

/// Questions about the current request that are answered on demand. Never blocks. What is not answered is not known.
#[expect(unused_variables, reason = "the questions by their names")]
pub trait DecisionQueries: Send + Sync {
    /// The candidates, in row order. Without them the policy's sessions are neither recalled nor remembered.
    fn candidates(&self) -> &[WorkerId] {
        &[]
    }

    /// A candidate of this call.
    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        None
    }

    /// For each candidate, in row order: tokens of the longest prefix held on `tier` or a faster one.
    fn matched(&self, tier: Tier) -> Vec<u32> {
        Vec::new()
    }

    /// How many candidates hold at least the first `tokens` tokens on any tier.
    fn holders(&self, tokens: u32) -> u32 {
        0
    }

    /// For each candidate, in row order, how many other held requests wait for it, and the work of those among them that are at most
    /// so much there: two numbers a candidate.
    fn ahead(&self, most: &[u32]) -> Vec<u32> {
        Vec::new()
    }

    /// The first value of a header, unless it holds a secret.
    fn header(&self, name: &str) -> Option<String> {
        None
    }

    /// `model` of the body; empty when there is none.
    fn model(&self) -> &str {
        ""
    }

    /// Path of the request.
    fn path(&self) -> &str {
        ""
    }
}

/// Whether a header is never shown to a policy: its value lets whoever has it in.
#[must_use]
pub fn is_secret_header(name: &str) -> bool {
    const SECRETS: [&str; 5] = [
        "authorization",
        "cookie",
        "proxy-authorization",
        "x-api-key",
        "api-key",
    ];
    SECRETS.iter().any(|secret| secret.eq_ignore_ascii_case(name))
}

/// Knows nothing: for policies that ask nothing, and where the answers are had elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct NoAnswers;

impl DecisionQueries for NoAnswers {}

/// How a policy failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// It trapped (a panic, an unreachable, a memory fault).
    Trap,
    /// It used up its time.
    Deadline,
    /// It ran out of stack.
    StackOverflow,
    /// It was refused memory and died of it.
    OutOfMemory,
    /// It answered something that makes no sense.
    InvalidVerdict,
    /// No instance could be had.
    NoInstance,
}

impl FaultKind {
    /// Every kind, for metrics.
    pub const ALL: [Self; 6] = [
        Self::Trap,
        Self::Deadline,
        Self::StackOverflow,
        Self::OutOfMemory,
        Self::InvalidVerdict,
        Self::NoInstance,
    ];

    /// Its name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Deadline => "deadline",
            Self::StackOverflow => "stack-overflow",
            Self::OutOfMemory => "out-of-memory",
            Self::InvalidVerdict => "invalid-verdict",
            Self::NoInstance => "no-instance",
        }
    }
}

/// A policy failed to decide.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("policy `{policy}` failed ({}): {detail}", kind.as_str())]
pub struct PolicyFault {
    /// The policy's name in the configuration.
    pub policy: Arc<str>,
    /// How it failed.
    pub kind: FaultKind,
    /// One line for the log.
    pub detail: String,
}
