//! Sequential legs: the prefill leg runs to its end, then the decode leg is sent with its answer (nixl and stores).

use std::sync::Arc;

use bytes::Bytes;
use inference_api::{Handshake, PrefillAnswer};
use request_traces::LegKind;
use routing::Dialect;
use serde_json::value::RawValue;
use tracing::warn;

use crate::base::label::FailureKind;
use crate::dispatch::answer_check;
use crate::dispatch::attempt::{self, AttemptSpec};
use crate::dispatch::attempt_error::AttemptError;
use crate::dispatch::split::decode_prediction::DecodePrediction;
use crate::dispatch::split::leg_error::LegError;
use crate::dispatch::split::pair::{FailedLeg, HandoverParams, PairAttempt, PrefillLeg, SplitAnswer};
use crate::dispatch::split::prefill::{self, Prefilled};

pub(super) async fn send(
    attempt: &PairAttempt<'_>,
    kept: Option<HandoverParams>,
) -> Result<SplitAnswer, FailedLeg> {
    let request = attempt.request;
    // Booked before the prefill leg is sent, so that no other request takes this worker for idle meanwhile.
    let decode_booking = attempt::book_computed(request, attempt.decode);
    let prefilled = match kept {
        Some(HandoverParams::Answer(prefilled)) => prefilled,
        _ => match run_prefill(attempt).await {
            // Engines of another kind refuse the trial's leg, or never end it. The decode worker answers the client's
            // request.
            Err(failed) if attempt.handover.is_trial && is_without_retry(&failed.error) => {
                Prefilled { answer: Bytes::new() }
            }
            prefilled => prefilled?,
        },
    };
    let prefill_answer = PrefillAnswer::read(&prefilled.answer).ok();
    let dialect = attempt.handover.dialect;
    let spec = AttemptSpec {
        choice: attempt.decode,
        leg: LegKind::Decode,
        lease: decode_booking,
        // Where nixl hands nothing over, the client's own body is sent.
        body: attempt.bodies.decode(&handshake(
            dialect,
            prefill_answer.and_then(|prefill_answer| prefill_answer.params),
        )),
        rank: attempt::pinned_rank(request, attempt.decode),
        once: true,
        limits: attempt.decode_send_timeouts(),
        timeouts: attempt.decode_timeouts(),
    };
    let correction = attempt.correction(prefill_answer);
    let is_handed_over = dialect == Dialect::Store
        || prefill_answer.is_some_and(|prefill_answer| prefill_answer.params.is_some());
    // The leg of a trial may have failed.
    let has_prompt = !prefilled.answer.is_empty();
    let mut prediction = DecodePrediction::default();
    prediction.computed(attempt);
    let answered = match attempt::send(request, spec).await {
        Ok(answer) => answer_check::accept(request, answer).await,
        Err(error) => Err(error.into()),
    };
    match answered {
        Ok(answer) => {
            prediction.answered(attempt, answer.response.status());
            Ok(SplitAnswer {
                answer,
                prefill: Box::new(PrefillLeg {
                    member: is_handed_over.then_some(attempt.prefill.member),
                    has_prompt,
                    correction,
                    rest: None,
                }),
            })
        }
        Err(error) => {
            prediction.failed(attempt, &error);
            // A store keeps its blocks. Nixl's blocks are freed by the first worker that begins to take them.
            let again = dialect == Dialect::Store || error.nothing_was_used();
            let kept = again.then_some(HandoverParams::Answer(prefilled));
            Err(FailedLeg {
                has_prompt,
                ..attempt.decode_failed(error, kept)
            })
        }
    }
}

/// Returns `true` if no other prefill worker is tried after this error.
fn is_without_retry(error: &AttemptError) -> bool {
    !error.is_the_workers() || !error.may_go_elsewhere()
}

async fn run_prefill(attempt: &PairAttempt<'_>) -> Result<Prefilled, FailedLeg> {
    let request = attempt.request;
    let spec = AttemptSpec {
        choice: attempt.prefill,
        leg: LegKind::Prefill(attempt.handover.dialect.as_str()),
        lease: attempt::book_prompt(request, attempt.prefill),
        body: attempt.bodies.prefill(&handshake(attempt.handover.dialect, None)),
        rank: attempt::pinned_rank(request, attempt.prefill),
        once: true,
        limits: attempt.prefill_send_timeouts(),
        timeouts: attempt.prefill_timeouts(),
    };
    let done = prefill::run(Arc::clone(request), spec, attempt.pd.spec.prefill_timeout).await;
    let done = done.map_err(|error| attempt.prefill_failed(error))?;
    let Ok(prefill_answer) = PrefillAnswer::read(&done.answer) else {
        let link = &request.pool().workers.members[attempt.prefill.member].link;
        link.metrics.failed(FailureKind::BadAnswer);
        return Err(attempt.prefill_failed(LegError::NotHandedOver.into()));
    };
    if attempt.handover.is_trial {
        if prefill_answer.params.is_some()
            && let Some(detection) = &attempt.pd.detection
        {
            let worker = &*attempt.request.pool().workers.members[attempt.prefill.member]
                .worker
                .spec()
                .name;
            let evidence = format!("kv_transfer_params in an answer of {worker}");
            detection.found(&attempt.request.pool().workers.name, Dialect::Nixl, &evidence);
        }
    } else if attempt.handover.dialect == Dialect::Nixl && prefill_answer.params.is_none() {
        handover_failed(attempt);
        if !attempt.pd.spec.alone {
            return Err(attempt.prefill_failed(LegError::NotHandedOver.into()));
        }
    } else {
        let pool = request.pool();
        let worker = &pool.workers.members[attempt.prefill.member].worker;
        pool.workers.knowledge.handovers.succeeded(&worker.spec().name);
    }
    Ok(done)
}

fn handover_failed(attempt: &PairAttempt<'_>) {
    attempt.pd.metrics.handover_failures.inc();
    let pool = attempt.request.pool();
    let member = &pool.workers.members[attempt.prefill.member];
    let error = "its prefill answer has no kv_transfer_params";
    pool.workers
        .knowledge
        .handovers
        .failed(&member.worker.spec().name, error);
    if let Some(held_back) = member.link.failure_log.pass() {
        warn!(
            worker = &*member.worker.spec().name,
            held_back,
            "a prefill answer has no kv_transfer_params: does the engine run with --kv-transfer-config? \
             The decode worker computes the prompt itself"
        );
    }
}

fn handshake(dialect: Dialect, params: Option<&RawValue>) -> Handshake<'_> {
    match dialect {
        Dialect::Store => Handshake::Store,
        _ => Handshake::Nixl { params },
    }
}
