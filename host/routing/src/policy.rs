//! Interface between the router and policies. Three implementations: WebAssembly components (`policy-runtime`),
//! pipelines of them (`pipeline/`) and the native fallback (`fallback.rs`).

use std::fmt;
use std::sync::Arc;

use crate::block::Tier;
use crate::decision::Verdict;
use crate::event::EventListener;
use crate::fault::PolicyFault;
use crate::feature::FeaturePlan;
use crate::id::WorkerId;
use crate::origin::Origin;
use crate::pipeline::PipelineSpec;
use crate::random::RunNumber;
use crate::transcript::Transcript;
use crate::worker::Worker;

/// Description of a policy: its name and its origin, and the inputs that it needs.
pub trait PolicyDescription: Send + Sync + fmt::Debug {
    /// Returns its name in the configuration.
    fn name(&self) -> &str;

    /// Returns the numbers that it requests.
    fn plan(&self) -> &FeaturePlan;

    /// Returns true if the versions that may decide now need the prompt's tokens.
    fn needs_tokens(&self) -> bool {
        self.plan().needs_tokens()
    }

    /// Returns true if the versions that may decide now need a lookup in the prefix index. Without one its columns are
    /// NaN.
    fn needs_prefix(&self) -> bool {
        self.plan().needs_prefix()
    }

    /// Returns its origin. `None` if it is part of the router.
    fn origin(&self) -> Option<&Arc<Origin>> {
        None
    }

    /// Returns its specification, if it is made of others.
    fn pipeline(&self) -> Option<&Arc<PipelineSpec>> {
        None
    }
}

/// A policy: it places requests.
pub trait Policy: PolicyDescription {
    /// Decides one request. Called on the request's own thread; never blocks.
    ///
    /// # Errors
    /// [`PolicyFault`] when the policy failed; the router then calls its fallback, and the client sees no error.
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault>;

    /// Decides, and returns the host calls as well. A policy without host calls returns an empty transcript.
    fn decide_recording(&self, input: &DecisionInput<'_>) -> (Result<Verdict, PolicyFault>, Transcript) {
        (self.decide(input), Transcript::default())
    }

    /// Returns its receivers of events. A policy that is made of others has theirs.
    fn listeners(&self) -> Vec<Arc<dyn EventListener>> {
        Vec::new()
    }

    /// Returns itself, if it scores candidates.
    fn scorer(&self) -> Option<&dyn Scorer> {
        None
    }
}

/// A policy that scores each candidate.
pub trait Scorer {
    /// Fills `scores`, which has a place for each candidate, in row order: any unit, higher is better, NaN for no
    /// opinion. Called as [`Policy::decide`] is.
    ///
    /// # Errors
    /// [`PolicyFault`] when it failed; what is in `scores` then means nothing.
    fn score(&self, input: &DecisionInput<'_>, scores: &mut [f64]) -> Result<(), PolicyFault>;

    /// Scores, and returns the host calls as well.
    fn score_recording(
        &self,
        input: &DecisionInput<'_>,
        scores: &mut [f64],
    ) -> (Result<(), PolicyFault>, Transcript);
}

/// The part of a request that is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// One worker does prefill and decode.
    Mixed,
    /// Only the prefill leg.
    Prefill,
    /// Only the decode leg.
    Decode,
}

/// Facts of the request that every policy receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFacts {
    /// Counts requests from 1; seeds the policy's randomness together with `run` and `attempt`.
    pub seq: u64,
    /// The process that counts them.
    pub run: RunNumber,
    /// A stable hash of the client's session key.
    pub session: Option<u64>,
    /// The part that is placed.
    pub phase: Phase,
    /// Number of decisions about this request before.
    pub attempt: u32,
    /// Microseconds on a monotonic clock, frozen for the call.
    pub now_us: u64,
}

impl RequestFacts {
    /// Returns the facts of the first decision about a request of a mixed phase, without a session, at time 0.
    #[must_use]
    pub fn of_seq(seq: u64) -> Self {
        Self {
            seq,
            run: RunNumber::default(),
            session: None,
            phase: Phase::Mixed,
            attempt: 0,
            now_us: 0,
        }
    }

    /// Returns the seed of the request's randomness, besides `attempt`.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.run.seed(self.seq)
    }
}

/// Input of one decision.
#[derive(Clone, Copy)]
pub struct DecisionInput<'a> {
    /// Facts of the request.
    pub request: &'a RequestFacts,
    /// Ids of the candidates, never empty.
    pub ids: &'a [WorkerId],
    /// The request's numbers, then one row a candidate, in the order of the [`FeaturePlan`].
    pub numbers: &'a [f64],
    /// Further queries. Shared, because a component's host functions outlive any borrow.
    pub queries: &'a Arc<dyn DecisionQueries>,
}

impl Phase {
    /// Returns its name in the contract.
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

/// Queries about the current request, answered on demand. They never block. Without an answer the value is unknown.
#[expect(unused_variables, reason = "the queries by their names")]
pub trait DecisionQueries: Send + Sync {
    /// Returns the candidates, in row order. Without them the policy's sessions are neither recalled nor remembered.
    fn candidates(&self) -> &[WorkerId] {
        &[]
    }

    /// Returns a candidate of this call.
    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        None
    }

    /// Returns, for each candidate in row order, the tokens of the longest prefix held on `tier` or a faster one.
    fn matched(&self, tier: Tier) -> Vec<u32> {
        Vec::new()
    }

    /// Returns how many candidates hold at least the first `tokens` tokens on any tier.
    fn holders(&self, tokens: u32) -> u32 {
        0
    }

    /// Returns two numbers for each candidate, in row order: how many other held requests of no lower class wait for
    /// it, and the work there of those that go before this one. In its class and tenant, those have at most so much
    /// work.
    fn ahead(&self, most: &[u32]) -> Vec<u32> {
        Vec::new()
    }

    /// Returns the first value of a header, unless it holds a secret.
    fn header(&self, name: &str) -> Option<String> {
        None
    }

    /// Returns `model` of the body; empty when there is none.
    fn model(&self) -> &str {
        ""
    }

    /// Returns the path of the request.
    fn path(&self) -> &str {
        ""
    }
}

/// Returns whether a header is never shown to a policy: its value grants access.
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

/// Queries without answers: for policies that make none, and where the answers come from elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct NoAnswers;

impl DecisionQueries for NoAnswers {}
