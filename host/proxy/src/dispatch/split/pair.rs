//! Attempt on a pair of workers, and what one attempt keeps for the next.

use std::sync::Arc;

use inference_api::{CachedTokensFilter, Endpoint, PrefillAnswer, Split};
use placement::{PlacementPart, WorkerChoice};
use routing::{Dialect, WorkerId};
use worker_client::SendTimeouts;

use crate::base::idle_timeout::IdleTimeoutLimits;
use crate::dispatch::attempt::BegunAnswer;
use crate::dispatch::attempt_error::{AttemptError, AttemptFailure};
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::split::concurrent::{self, Transfer};
use crate::dispatch::split::prefill::Prefilled;
use crate::dispatch::split::sequential;
use crate::dispatch::split::spec::{Handover, PdPool};
use crate::tasks::Guard;

/// Prefill leg of a request whose decode leg answers.
#[derive(Debug)]
pub(crate) struct PrefillLeg {
    /// Index, among the pool's members, of the worker that computed the prompt, where that was another one.
    pub(crate) member: Option<usize>,
    /// Set if the prefill worker holds the prompt, or goes on computing it.
    pub(crate) has_prompt: bool,
    /// Filter that corrects the number of cached tokens, where the answer's own would not be true.
    pub(crate) correction: Option<CachedTokensFilter>,
    /// Background task that finishes the leg.
    pub(crate) rest: Option<Guard>,
}

/// Answer of a decode leg, with its prefill leg.
#[derive(Debug)]
pub(crate) struct SplitAnswer {
    pub(crate) answer: Box<BegunAnswer>,
    pub(crate) prefill: Box<PrefillLeg>,
}

/// Computed prompt that a failed attempt leaves for the next one, if there is one.
#[derive(Debug, Default)]
pub(crate) struct KeptPrompt(Option<UnclaimedPrompt>);

/// Pair of workers that a request is placed on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerPair {
    pub(crate) prefill: WorkerChoice,
    pub(crate) decode: WorkerChoice,
}

/// Computed prompt that no decode worker has taken over yet.
#[derive(Debug)]
pub(super) struct UnclaimedPrompt {
    pub(super) prefill: WorkerChoice,
    pub(super) handed: HandoverParams,
}

/// Handshake parameters that a decode worker receives.
#[derive(Debug)]
pub(super) enum HandoverParams {
    /// The prefill worker's answer.
    Answer(Prefilled),
    /// A transfer whose parameters the router made.
    Transfer(Transfer),
}

/// Failed leg, with the parts that may be used again.
pub(super) struct FailedLeg {
    pub(super) blamed: Option<WorkerChoice>,
    /// Both workers, where only one may have failed. The one to be tried again first stands last.
    pub(super) suspected: Option<[WorkerChoice; 2]>,
    /// Set if the prefill worker may hold the prompt, or goes on computing it.
    pub(super) has_prompt: bool,
    pub(super) error: AttemptError,
    pub(super) kept: Option<HandoverParams>,
}

/// Attempt on a pair of workers.
pub(super) struct PairAttempt<'a> {
    pub(super) dispatcher: &'a Dispatcher,
    pub(super) request: &'a Arc<InferenceRequest>,
    pub(super) pd: &'a PdPool,
    pub(super) bodies: &'a Split,
    pub(super) handover: Handover,
    pub(super) prefill: WorkerChoice,
    pub(super) decode: WorkerChoice,
}

impl KeptPrompt {
    /// Returns the part to be placed next.
    pub(crate) fn part(&self) -> PlacementPart {
        match self.0 {
            Some(_) => PlacementPart::Decode,
            None => PlacementPart::Request,
        }
    }

    /// Drops the kept prompt, which no worker takes over. Returns `true` if there was one.
    pub(crate) fn forget(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Returns the worker that computed the prompt.
    pub(crate) fn prefill(&self) -> Option<WorkerChoice> {
        self.0.as_ref().map(|kept| kept.prefill)
    }
}

/// Sends the request to a pair. A kept prompt is handed over once more. `None` if the request cannot be split.
pub(crate) async fn send(
    dispatcher: &Dispatcher,
    request: &Arc<InferenceRequest>,
    pair: WorkerPair,
    prompt: &mut KeptPrompt,
) -> Option<Result<SplitAnswer, AttemptFailure>> {
    let (pd, split) = (request.pool().pd.as_ref()?, request.split.as_ref()?);
    let kept = prompt.0.take();
    match kept {
        Some(_) => pd.metrics.handed_again.inc(),
        None => pd.metrics.pairs.inc(),
    };
    let attempt = PairAttempt {
        dispatcher,
        request,
        pd,
        bodies: &split.bodies,
        handover: split.handover,
        prefill: pair.prefill,
        decode: pair.decode,
    };
    let handed = kept.map(|kept| kept.handed);
    let sent = if split.handover.dialect.is_concurrent() {
        concurrent::send(&attempt, handed).await
    } else {
        sequential::send(&attempt, handed).await
    };
    Some(sent.map_err(|failed| {
        let prefill = pair.prefill;
        prompt.0 = failed.kept.map(|handed| UnclaimedPrompt { prefill, handed });
        AttemptFailure {
            blamed: failed.blamed.map(|choice| attempt.worker(choice)),
            suspected: failed
                .suspected
                .map(|pair| pair.map(|choice| attempt.worker(choice))),
            has_prompt: failed.has_prompt,
            error: failed.error,
        }
    }))
}

impl PairAttempt<'_> {
    pub(super) fn worker(&self, choice: WorkerChoice) -> WorkerId {
        self.request.pool().workers.members[choice.member].worker.id()
    }

    pub(super) fn prefill_send_timeouts(&self) -> SendTimeouts {
        SendTimeouts {
            connect: self.pd.spec.connect_timeout,
            first_byte: self.pd.spec.prefill_timeout,
        }
    }

    /// Returns the idle timeouts of a prefill leg, whose own limit covers all of it.
    pub(super) fn prefill_timeouts(&self) -> IdleTimeoutLimits {
        IdleTimeoutLimits {
            first_byte: self.pd.spec.prefill_timeout,
            idle: self.pd.spec.prefill_timeout,
            deadline: None,
        }
    }

    /// Returns the timeout of a decode leg. A leg that is sent with its prefill leg waits for that first.
    fn decode_timeout(&self) -> std::time::Duration {
        if self.handover.dialect.is_concurrent() {
            self.pd.spec.prefill_timeout + self.pd.spec.first_token_timeout
        } else {
            self.pd.spec.first_token_timeout
        }
    }

    pub(super) fn decode_send_timeouts(&self) -> SendTimeouts {
        SendTimeouts {
            connect: self.pd.spec.connect_timeout,
            first_byte: self.decode_timeout(),
        }
    }

    pub(super) fn decode_timeouts(&self) -> IdleTimeoutLimits {
        IdleTimeoutLimits {
            first_byte: self.decode_timeout(),
            idle: self.pd.spec.idle_timeout,
            deadline: self.request.deadline(),
        }
    }

    /// Returns the failure of the prefill worker.
    pub(super) fn prefill_failed(&self, error: AttemptError) -> FailedLeg {
        FailedLeg {
            blamed: (!error.is_blameless()).then_some(self.prefill),
            suspected: None,
            has_prompt: !error.left_no_prompt(),
            error,
            kept: None,
        }
    }

    /// Returns the failure of the decode worker, once the prompt is computed. `kept` can be used again where that
    /// worker had nothing of it.
    pub(super) fn decode_failed(&self, error: AttemptError, kept: Option<HandoverParams>) -> FailedLeg {
        // A decode worker answers so where the prefill worker died with the prompt. Another pair, or this worker by
        // itself, may succeed.
        let lacks = error.may_lack_the_prompt();
        FailedLeg {
            blamed: (!lacks && !error.is_blameless()).then_some(self.decode),
            suspected: lacks.then_some([self.prefill, self.decode]),
            has_prompt: true,
            error,
            kept,
        }
    }

    /// Returns the filter that corrects the count of cached tokens. A decode worker that was handed a prompt counts all
    /// of it as cached. The prefill worker's number is the true one. Where that worker reports none, the response has
    /// none. Decode workers of Nixl and SGLang pass that number on themselves.
    pub(super) fn correction(&self, prefilled: Option<PrefillAnswer<'_>>) -> Option<CachedTokensFilter> {
        let cached = prefilled.and_then(|prefilled| prefilled.cached_tokens);
        match self.handover.dialect {
            Dialect::Mooncake | Dialect::Store if self.request.head.endpoint == Endpoint::Messages => {
                let input = prefilled.and_then(|prefilled| prefilled.input_tokens);
                Some(CachedTokensFilter::of_message(cached, input))
            }
            Dialect::Mooncake | Dialect::Store => Some(CachedTokensFilter::new(cached)),
            Dialect::Nixl | Dialect::Sglang => None,
        }
    }
}
