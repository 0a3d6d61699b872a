//! One request's way through a pool, over all its tries, and what is kept of one for the next.

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

/// The answer to a client, and what of the prefill leg goes with it.
#[derive(Debug)]
pub(crate) struct UpstreamResponse {
    pub(crate) answer: Answer,
    /// The worker that computed the prompt, by its index among the pool's members, where another did.
    pub(crate) prefill: Option<usize>,
    /// Puts the number of cached tokens right, where the answer's own would not be true.
    pub(crate) truth: Option<CachedTokensFilter>,
    /// What is left of the prefill leg, run meanwhile.
    pub(crate) rest: Option<Guard>,
}

/// A request over all its tries.
#[derive(Debug, Default)]
pub(crate) struct RetryState {
    kept: Option<Kept>,
    tries: u32,
}

/// A prompt that is computed, with no decode worker that takes it over yet.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) prefill: WorkerChoice,
    pub(super) handed: Handed,
}

/// What a decode worker is told of it.
#[derive(Debug)]
pub(super) enum Handed {
    /// The prefill worker's answer.
    Answer(Prefilled),
    /// A transfer that the router made up.
    Transfer(Transfer),
}

/// A leg that failed, and what may be used again all the same.
pub(super) struct Failed {
    pub(super) blamed: Option<WorkerChoice>,
    /// Both, where it may have been only one: the one to be tried again first stands last.
    pub(super) suspected: Option<[WorkerChoice; 2]>,
    pub(super) error: AttemptError,
    pub(super) kept: Option<Handed>,
}

/// One try on a pair of workers.
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
    /// What is to be placed next.
    pub(crate) fn part(&self) -> PlacementPart {
        match self.kept {
            Some(_) => PlacementPart::Decode,
            None => PlacementPart::Request,
        }
    }

    /// Nobody takes over what was kept. Whether there was something.
    pub(crate) fn forget(&mut self) -> bool {
        self.kept.take().is_some()
    }

    /// Sends it to where it was placed.
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
        // What takes the place of a pair is tried elsewhere as a leg is.
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

    /// How silent a prefill leg may be: its own limit is over all of it.
    pub(super) fn prefill_silence(&self) -> IdleTimeoutLimits {
        IdleTimeoutLimits {
            first_byte: self.pd.spec.prefill_timeout,
            idle: self.pd.spec.prefill_timeout,
            deadline: None,
        }
    }

    /// A decode leg that goes out with its prefill leg waits for that first.
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

    /// The prefill worker failed.
    pub(super) fn prefill_failed(&self, error: AttemptError) -> Failed {
        Failed {
            blamed: (!error.is_blameless()).then_some(self.prefill),
            suspected: None,
            error,
            kept: None,
        }
    }

    /// The decode worker failed. `kept` is of use again where it had nothing of it.
    pub(super) fn decode_failed(&self, error: AttemptError, kept: Option<Handed>) -> Failed {
        // It answers so where a prefill worker died with the prompt: another pair, or this worker by itself, may do.
        let lacks = error.may_lack_the_prompt();
        Failed {
            blamed: (!lacks && !error.is_blameless()).then_some(self.decode),
            suspected: lacks.then_some([self.prefill, self.decode]),
            error,
            kept,
        }
    }

    /// A decode worker that was handed a prompt counts all of it as cached; the prefill worker's number is the true one, and
    /// where it tells none, none is. Nixl's and SGLang's decode workers pass that number on themselves.
    pub(super) fn truth(&self, cached: Option<u64>) -> Option<CachedTokensFilter> {
        match self.handover.dialect {
            Dialect::Mooncake | Dialect::Store => Some(CachedTokensFilter::new(cached)),
            Dialect::Nixl | Dialect::Sglang => None,
        }
    }
}
