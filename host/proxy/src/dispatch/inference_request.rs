//! One inference request, ready to be placed. It is built once. Decisions and attempts only read it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;
use experiment::Assignment;
use inference_api::Split;
use placement::{AllowedShapes, RequestIdentity, RequestValues};
use routing::Phase;

use crate::dispatch::crashes::Crashes;
use crate::dispatch::hashed_prompt::HashedPrompt;
use crate::dispatch::pool_state::PoolState;
use crate::dispatch::request_head::RequestHead;
use crate::dispatch::request_policies::RequestPolicies;
use crate::dispatch::request_pool::RequestPool;
use crate::dispatch::route_policies::DecidingPolicy;
use crate::dispatch::settings::DecisionSettings;
use crate::dispatch::split::{Handover, PdPool};
use crate::fleet::catalog::RequestModel;
use crate::limits::admission::{AdmissionInput, RequestTerms, ttft_target};
use crate::limits::clients::Principal;
use crate::observe::decided_by::DecidedBy;
use crate::observe::experiments::Enrollment;
use crate::record::Trace;

/// Inference request with its pool and its policies.
pub(crate) struct InferenceRequest {
    pub(crate) pool: RequestPool,
    /// Policies that decide. `assignment` stays that of the arrival.
    pub(crate) policies: RequestPolicies,
    pub(crate) settings: Arc<DecisionSettings>,
    /// Arm that counts the request. `None` where the route has only one.
    pub(crate) assignment: Option<Assignment>,
    /// Head, its headers without those of the connection. Each attempt applies its pool's `authorization` to them.
    pub(crate) head: Box<RequestHead>,
    pub(crate) body: Bytes,
    pub(crate) params: RequestParams,
    /// Set where the request can be split between two workers.
    pub(crate) split: Option<SplitRequest>,
    pub(crate) sender: RequestSender,
    pub(crate) progress: DispatchProgress,
}

/// Parameters that the body states, or that were derived from it.
#[derive(Debug)]
pub(crate) struct RequestParams {
    /// Estimated number of the prompt's tokens.
    pub(crate) estimated_tokens: usize,
    pub(crate) model: Box<str>,
    pub(crate) stream: bool,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) priority: Option<i64>,
    /// Hash of the client's session key.
    pub(crate) session: Option<u64>,
    /// The prompt as the index is queried for it, where its tokens are known.
    pub(crate) prompt: Option<HashedPrompt>,
    /// Duration of the tokenization, if there was one.
    pub(crate) tokens_took: Option<Duration>,
}

/// Bodies of the two legs of a request, and the rules of their hand-over.
#[derive(Debug)]
pub(crate) struct SplitRequest {
    pub(crate) bodies: Split,
    pub(crate) handover: Handover,
}

/// Client of a request, and the terms that it states.
#[derive(Debug, Default)]
pub(crate) struct RequestSender {
    /// Class, tenant and timeout that the request states.
    pub(crate) terms: RequestTerms,
    /// Client whose key the request has. `None` where clients need no key.
    pub(crate) client: Option<Arc<Principal>>,
}

/// State of a request that its decisions and attempts write.
#[derive(Debug, Default)]
pub(crate) struct DispatchProgress {
    /// Record in the decision log, where the request is recorded.
    pub(crate) trace: Option<Arc<Trace>>,
    /// Name of the deciding policy, where it is reported.
    pub(crate) decided_by: DecidedBy,
    /// `true` once a worker was sent the request.
    pub(crate) is_sent: AtomicBool,
    /// Workers that closed the connection on the request.
    pub(crate) crashes: Crashes,
    /// Index of the only member that can answer it: the member keeps the response that this request goes on from.
    pub(crate) pinned: Option<usize>,
}

// The debug text has no prompt, and no header.
impl fmt::Debug for InferenceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InferenceRequest")
            .field("id", &self.head.id)
            .field("pool", &self.pool().workers.name)
            .finish_non_exhaustive()
    }
}

impl InferenceRequest {
    /// Returns the seed of its random draws, besides the attempt.
    pub(crate) fn seed(&self) -> u64 {
        self.head.run.seed(self.head.seq)
    }

    /// Returns the pool of its present or next attempt.
    pub(crate) fn pool(&self) -> &Arc<PoolState> {
        self.pool.now().state()
    }

    /// Returns the members that serve its model.
    pub(crate) fn served(&self) -> &RequestModel {
        self.pool.now().served()
    }

    /// Returns the deadline of the whole request, where that is limited. A later snapshot does not change it.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let limits = &self.pool.state().limits;
        self.head.arrived.checked_add(limits.request_timeout?)
    }

    /// Returns the policy that places that part of the request now, in every attempt until it moves.
    pub(crate) fn policy(&self, phase: Phase) -> &DecidingPolicy {
        self.policies.deciding(phase)
    }

    /// Returns `true` if the name of the deciding policy is needed: by the client, or by the comparison with the
    /// route's shadows.
    pub(crate) fn reports_policy(&self) -> bool {
        self.settings.decision_headers || self.policies.at_arrival().shadows.is_some()
    }

    /// Enrolls the request in the experiment of the route, if there is one.
    pub(crate) fn enrollment(&self) -> Option<Enrollment> {
        let trial = Arc::clone(self.policies.at_arrival().trial()?);
        Some(Enrollment::new(trial, self.assignment?, self.params.stream))
    }

    /// Returns the ways in which the request may be placed.
    pub(crate) fn allowed(&self) -> AllowedShapes {
        AllowedShapes {
            mixed: true,
            pair: self.split.is_some(),
            alone: self.pool().pd.as_ref().is_some_and(PdPool::decodes_alone),
        }
    }

    /// Returns `true` if the request is not split because the dialect of its pool's engines is unknown.
    pub(crate) fn dialect_is_unknown(&self) -> bool {
        self.pool().pd.as_ref().is_some_and(|pd| pd.dialect().is_none())
    }

    /// Returns the prompt's length in tokens, estimated where it is not known.
    pub(crate) fn prompt_tokens(&self) -> u32 {
        let prompt = self.params.prompt.as_ref();
        let tokens = prompt.map_or(self.params.estimated_tokens, HashedPrompt::tokens);
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// Returns the inputs of its admission.
    pub(crate) fn admission(&self) -> AdmissionInput<'_> {
        AdmissionInput {
            queue: &self.pool().queue,
            workers: &self.pool().workers,
            model: &self.params.model,
            objectives: &self.policies.at_arrival().objectives,
            terms: &self.sender.terms,
            client: self.sender.client.as_deref(),
            arrived: self.head.arrived,
            prompt_tokens: self.prompt_tokens(),
            max_tokens: self.params.max_tokens,
        }
    }

    pub(crate) fn identity(&self) -> RequestIdentity {
        RequestIdentity {
            seq: self.head.seq,
            run: self.head.run,
            session: self.params.session,
        }
    }

    pub(crate) fn values(&self) -> RequestValues {
        let prompt = self.params.prompt.as_ref();
        RequestValues {
            prompt_tokens: prompt.map(|prompt| HashedPrompt::tokens(prompt) as u64),
            estimated_tokens: self.prompt_tokens(),
            max_tokens: self.params.max_tokens,
            body_bytes: self.body.len() as u64,
            priority: self.params.priority,
            stream: self.params.stream,
            ttft_target: ttft_target(&self.pool().queue, &self.policies.at_arrival().objectives),
        }
    }
}
