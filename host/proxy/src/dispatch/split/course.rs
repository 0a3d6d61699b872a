//! Retry state of one request in a pool, over all its attempts: what one attempt keeps for the next.

use std::sync::Arc;

use inference_api::{CachedTokensFilter, Split};
use placement::{PlacementPart, WorkerChoice, WorkerPlacement};
use routing::{Dialect, WorkerId};
use worker_client::SendTimeouts;

use crate::base::idle_timeout::IdleTimeoutLimits;
use crate::dispatch::attempt::{self, Answer, AttemptSpec};
use crate::dispatch::retry;
use crate::dispatch::split::concurrent::{self, Transfer};
use crate::dispatch::split::leg::{self, AttemptError, AttemptFailure};
use crate::dispatch::split::prefill::Prefilled;
use crate::dispatch::split::sequential;
use crate::dispatch::split::spec::{Handover, PdPool};
use crate::proxy::Proxy;
use crate::request::context::RequestContext;
use crate::tasks::Guard;

/// Answer to a client, with the parts of the prefill leg that it needs.
#[derive(Debug)]
pub(crate) struct UpstreamResponse {
    pub(crate) answer: Answer,
    /// Index, among the pool's members, of the worker that computed the prompt, where that was another one.
    pub(crate) prefill: Option<usize>,
    /// Filter that corrects the number of cached tokens, where the answer's own would not be true.
    pub(crate) truth: Option<CachedTokensFilter>,
    /// Background task that finishes the prefill leg.
    pub(crate) rest: Option<Guard>,
}

/// State of a request over all its attempts.
#[derive(Debug, Default)]
pub(crate) struct RetryState {
    kept: Option<Kept>,
    tries: u32,
}

/// Computed prompt that no decode worker has taken over yet.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) prefill: WorkerChoice,
    pub(super) handed: Handed,
}

/// Handshake parameters that a decode worker receives.
#[derive(Debug)]
pub(super) enum Handed {
    /// The prefill worker's answer.
    Answer(Prefilled),
    /// A transfer whose parameters the router made.
    Transfer(Transfer),
}

/// Failed leg, with the parts that may be used again.
pub(super) struct Failed {
    pub(super) blamed: Option<WorkerChoice>,
    /// Both workers, where only one may have failed. The one to be tried again first stands last.
    pub(super) suspected: Option<[WorkerChoice; 2]>,
    pub(super) error: AttemptError,
    pub(super) kept: Option<Handed>,
}

/// Attempt on a pair of workers.
pub(super) struct Try<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) request: &'a Arc<RequestContext>,
    pub(super) pd: &'a PdPool,
    pub(super) split: &'a Split,
    pub(super) handover: Handover,
    pub(super) prefill: WorkerChoice,
    pub(super) decode: WorkerChoice,
}

impl RetryState {
    /// Returns the part to be placed next.
    pub(crate) fn part(&self) -> PlacementPart {
        match self.kept {
            Some(_) => PlacementPart::Decode,
            None => PlacementPart::Request,
        }
    }

    /// Drops the kept prompt, which no worker takes over. Returns `true` if there was one.
    pub(crate) fn forget(&mut self) -> bool {
        self.kept.take().is_some()
    }

    /// Sends the request to the workers it was placed on.
    pub(crate) async fn send(
        &mut self,
        proxy: &Proxy,
        request: &Arc<RequestContext>,
        placement: WorkerPlacement,
    ) -> Result<UpstreamResponse, AttemptFailure> {
        self.tries += 1;
        let kept = self.kept.take();
        let pair = kept.as_ref().map(|kept| kept.prefill).or(placement.prefills);
        let (Some(pd), Some((split, handover)), Some(prefill)) = (&request.pool().pd, &request.split, pair)
        else {
            return send_whole(request, placement.answers, self.tries).await;
        };
        match kept {
            Some(_) => pd.metrics.handed_again.inc(),
            None => pd.metrics.pairs.inc(),
        };
        let attempt = Try {
            proxy,
            request,
            pd,
            split,
            handover: *handover,
            prefill,
            decode: placement.answers,
        };
        let handed = kept.map(|kept| kept.handed);
        let sent = if handover.dialect.is_concurrent() {
            concurrent::send(&attempt, handed).await
        } else {
            sequential::send(&attempt, handed).await
        };
        sent.map_err(|failed| {
            self.kept = failed.kept.map(|handed| Kept { prefill, handed });
            AttemptFailure {
                blamed: failed.blamed.map(|seat| attempt.worker(seat)),
                suspected: failed.suspected.map(|pair| pair.map(|seat| attempt.worker(seat))),
                error: failed.error,
            }
        })
    }
}

async fn send_whole(
    request: &RequestContext,
    seat: WorkerChoice,
    tries: u32,
) -> Result<UpstreamResponse, AttemptFailure> {
    let worker = request.pool().workers.members[seat.member].worker.id();
    if let Some(pd) = &request.pool().pd {
        pd.metrics.whole.inc();
    }
    let mut sent = attempt::send(request, AttemptSpec::whole(request, seat)).await;
    let is_not_served = match &mut sent {
        Ok(answer) if leg::may_be_not_served(request, answer) => {
            // On the heap: it is rare, and every request would carry its room.
            Box::pin(leg::is_not_served(request, answer)).await
        }
        _ => false,
    };
    let sent = match sent {
        Ok(answer) if is_not_served => Err(Box::pin(leg::refused(request, answer)).await),
        // A single worker in place of a pair is retried elsewhere, as a leg is.
        Ok(answer) if request.pool().pd.is_some() => leg::accept(request, answer).await,
        Ok(answer) if retry::is_worth_another(request, answer.response.status(), tries) => {
            Err(Box::pin(leg::refused(request, answer)).await)
        }
        sent => sent.map_err(AttemptError::from),
    };
    let answer = sent.map_err(|error| AttemptFailure {
        blamed: Some(worker),
        suspected: None,
        error,
    })?;
    Ok(UpstreamResponse {
        answer,
        prefill: None,
        truth: None,
        rest: None,
    })
}

impl Try<'_> {
    fn worker(&self, seat: WorkerChoice) -> WorkerId {
        self.request.pool().workers.members[seat.member].worker.id()
    }

    pub(super) fn prefill_limits(&self) -> SendTimeouts {
        SendTimeouts {
            connect: self.pd.spec.connect_timeout,
            first_byte: self.pd.spec.prefill_timeout,
        }
    }

    /// Returns the idle timeouts of a prefill leg, whose own limit covers all of it.
    pub(super) fn prefill_silence(&self) -> IdleTimeoutLimits {
        IdleTimeoutLimits {
            first_byte: self.pd.spec.prefill_timeout,
            idle: self.pd.spec.prefill_timeout,
            deadline: None,
        }
    }

    /// Returns the timeout of a decode leg. A leg that is sent with its prefill leg waits for that first.
    fn decode_patience(&self) -> std::time::Duration {
        if self.handover.dialect.is_concurrent() {
            self.pd.spec.prefill_timeout + self.pd.spec.first_token_timeout
        } else {
            self.pd.spec.first_token_timeout
        }
    }

    pub(super) fn decode_limits(&self) -> SendTimeouts {
        SendTimeouts {
            connect: self.pd.spec.connect_timeout,
            first_byte: self.decode_patience(),
        }
    }

    pub(super) fn decode_silence(&self) -> IdleTimeoutLimits {
        IdleTimeoutLimits {
            first_byte: self.decode_patience(),
            idle: self.pd.spec.idle_timeout,
            deadline: self.request.deadline(),
        }
    }

    /// Returns the failure of the prefill worker.
    pub(super) fn prefill_failed(&self, error: AttemptError) -> Failed {
        Failed {
            blamed: (!error.is_blameless()).then_some(self.prefill),
            suspected: None,
            error,
            kept: None,
        }
    }

    /// Returns the failure of the decode worker. `kept` can be used again where that worker had nothing of it.
    pub(super) fn decode_failed(&self, error: AttemptError, kept: Option<Handed>) -> Failed {
        // A decode worker answers so where the prefill worker died with the prompt. Another pair, or this worker by
        // itself, may succeed.
        let lacks = error.may_lack_the_prompt();
        Failed {
            blamed: (!lacks && !error.is_blameless()).then_some(self.decode),
            suspected: lacks.then_some([self.prefill, self.decode]),
            error,
            kept,
        }
    }

    /// Returns the filter that corrects the count of cached tokens. A decode worker that was handed a prompt counts all
    /// of it as cached. The prefill worker's number is the true one. Where that worker reports none, the response has
    /// none. Decode workers of Nixl and SGLang pass that number on themselves.
    pub(super) fn truth(&self, cached: Option<u64>) -> Option<CachedTokensFilter> {
        match self.handover.dialect {
            Dialect::Mooncake | Dialect::Store => Some(CachedTokensFilter::new(cached)),
            Dialect::Nixl | Dialect::Sglang => None,
        }
    }
}
