//! Concurrent legs: prefill and decode run at once (Mooncake and SGLang). Whichever leg can decide the outcome does so.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use inference_api::{Handshake, PrefillAnswer};
use request_traces::LegKind;
use routing::Dialect;
use tracing::info;
use worker_client::SendError;

use crate::base::label::FailureKind;
use crate::dispatch::answer_check;
use crate::dispatch::attempt::{self, AttemptSpec, BegunAnswer};
use crate::dispatch::attempt_error::AttemptError;
use crate::dispatch::split::decode_prediction::DecodePrediction;
use crate::dispatch::split::leg_error::LegError;
use crate::dispatch::split::pair::{FailedLeg, HandoverParams, PairAttempt, PrefillLeg, SplitAnswer};
use crate::dispatch::split::prefill::{self, Prefilled, Running};
use crate::fleet::health::AttemptToken;
use crate::tasks;

/// Timeout for the prefill worker's own answer, with its number of cached tokens, once the decode worker's answer has
/// begun. The prompt has arrived by then.
const PREFILL_ANSWER: Duration = Duration::from_secs(1);

/// Transfer that was agreed upon with a prefill worker.
#[derive(Debug)]
pub(super) struct Transfer {
    handshake_params: HandshakeParams,
    prefill: Prefill,
}

/// Handshake parameters: the names under which the two workers find each other.
#[derive(Debug)]
enum HandshakeParams {
    Mooncake {
        transfer_id: Box<str>,
        bootstrap: Box<str>,
        engine_id: Arc<str>,
        rank: u16,
    },
    Sglang {
        host: Box<str>,
        port: Option<u16>,
        room: u64,
    },
}

#[derive(Debug)]
enum Prefill {
    Running(Running),
    Done(Prefilled),
}

pub(super) async fn send(
    attempt: &PairAttempt<'_>,
    kept: Option<HandoverParams>,
) -> Result<SplitAnswer, FailedLeg> {
    let mut transfer = match kept {
        Some(HandoverParams::Transfer(transfer)) => transfer,
        _ => begin(attempt).await?,
    };
    let mut prediction = DecodePrediction::default();
    match both(attempt, &mut transfer, &mut prediction).await {
        Ok(answer) => {
            prediction.answered(attempt, answer.response.status());
            Ok(together(attempt, answer, transfer.prefill))
        }
        Err(Leg::Prefill(error)) => {
            prediction.lost(attempt);
            if error.may_be_a_restart() {
                mark_engine_ids_stale(attempt);
            }
            Err(attempt.prefill_failed(error))
        }
        Err(Leg::Decode(error)) => {
            prediction.failed(attempt, &error);
            Err(decode_failed(attempt, transfer, error).await)
        }
    }
}

/// The leg that decided, and its result.
enum Leg {
    Prefill(AttemptError),
    Decode(AttemptError),
}

/// Waits for both legs. Returns the beginning of the answer once the prompt is computed, or the first failure, which
/// drops the other leg.
async fn both(
    attempt: &PairAttempt<'_>,
    transfer: &mut Transfer,
    prediction: &mut DecodePrediction,
) -> Result<Box<BegunAnswer>, Leg> {
    transfer.prefill.awaited(true);
    let spec = decode_spec(attempt, &transfer.handshake_params);
    let events = spec.lease.lifecycle_events();
    let decode = send_decode(attempt, spec);
    let mut decode = pin!(decode);
    let mut answer: Option<Box<BegunAnswer>> = None;
    let patience = attempt.pd.spec.first_token_timeout;
    let mut late = pin!(tokio::time::sleep(patience));
    let mut replaced = pin!(replaced(attempt, &transfer.handshake_params));
    loop {
        let is_running = matches!(transfer.prefill, Prefill::Running(_));
        if !is_running {
            prediction.computed(attempt);
        }
        tokio::select! {
            biased;
            done = next(&mut transfer.prefill), if is_running => {
                let done = done.and_then(|done| handed_over(attempt, done));
                transfer.prefill = Prefill::Done(done.map_err(Leg::Prefill)?);
                late.as_mut().reset(tokio::time::Instant::now() + patience);
            }
            begun = &mut decode, if answer.is_none() => {
                let begun = begun.map_err(Leg::Decode)?;
                // The decode worker refuses the request itself, as the prefill worker will.
                if begun.response.status().is_client_error() {
                    transfer.prefill.awaited(false);
                    return Ok(begun);
                }
                answer = Some(begun);
                late.as_mut().reset(tokio::time::Instant::now() + PREFILL_ANSWER);
            }
            // The computed prompt is lost with the engine, and the decode worker would wait for it.
            () = &mut replaced, if !is_running && answer.is_none() => {
                return Err(Leg::Prefill(LegError::EngineRestarted.into()));
            }
            () = &mut late, if is_running == answer.is_some() => {
                return answer.ok_or_else(|| {
                    if let Some(events) = &events {
                        events.failed();
                    }
                    Leg::Decode(too_late(attempt, patience))
                });
            }
        }
        // SGLang's prefill worker answers beside the decode worker. Its answer is not needed.
        let may_begin =
            matches!(transfer.prefill, Prefill::Done(_)) || attempt.handover.dialect == Dialect::Sglang;
        if may_begin && let Some(answer) = answer.take() {
            return Ok(answer);
        }
    }
}

async fn replaced(attempt: &PairAttempt<'_>, handshake_params: &HandshakeParams) {
    let member = &attempt.request.pool().workers.members[attempt.prefill.member];
    match (handshake_params, &member.bootstrap) {
        (HandshakeParams::Mooncake { engine_id, rank, .. }, Some(bootstrap)) => {
            bootstrap.replaced(*rank, engine_id).await
        }
        _ => std::future::pending().await,
    }
}

/// Records that the decode worker has the prompt and sent no first byte in time. Returns the error.
fn too_late(attempt: &PairAttempt<'_>, patience: Duration) -> AttemptError {
    let error = SendError::FirstByteTimeout(patience);
    let pool = attempt.request.pool();
    let member = &pool.workers.members[attempt.decode.member];
    member.link.metrics.failed(FailureKind::from(&error));
    pool.workers.failed(member, AttemptToken::Plain, &error);
    error.into()
}

/// Checks that the prompt is handed over. An engine whose one token ended the answer keeps the prompt, and the decode
/// worker would wait for it without success.
fn handed_over(attempt: &PairAttempt<'_>, done: Prefilled) -> Result<Prefilled, AttemptError> {
    let is_kept = attempt.handover.dialect == Dialect::Mooncake
        && PrefillAnswer::read(&done.answer).is_ok_and(|prefilled| prefilled.stopped);
    if is_kept {
        return Err(LegError::NotHandedOver.into());
    }
    Ok(done)
}

impl Prefill {
    /// Sets whether a decode worker waits for the leg.
    fn awaited(&mut self, is: bool) {
        if let Self::Running(leg) = self {
            leg.awaited = is;
        }
    }

    /// Returns `true` if the prompt is computed, or will be although the request leaves the leg.
    fn has_prompt(&self) -> bool {
        match self {
            Self::Running(leg) => leg.outlives_its_request(),
            Self::Done(_) => true,
        }
    }
}

async fn next(prefill: &mut Prefill) -> Result<Prefilled, AttemptError> {
    match prefill {
        Prefill::Running(leg) => leg.await,
        Prefill::Done(_) => std::future::pending().await,
    }
}

async fn begin(attempt: &PairAttempt<'_>) -> Result<Transfer, FailedLeg> {
    let handshake_params = new_handshake(attempt)
        .await
        .map_err(|error| attempt.prefill_failed(error))?;
    let request = attempt.request;
    let spec = AttemptSpec {
        choice: attempt.prefill,
        leg: LegKind::Prefill(attempt.handover.dialect.as_str()),
        lease: attempt::book_prompt(request, attempt.prefill),
        body: attempt.bodies.prefill(&handshake_params.of(attempt)),
        rank: handshake_params
            .rank()
            .or(attempt::pinned_rank(request, attempt.prefill)),
        once: true,
        limits: attempt.prefill_send_timeouts(),
        timeouts: attempt.prefill_timeouts(),
    };
    let request = Arc::clone(request);
    let leg = prefill::run(request, spec, attempt.pd.spec.prefill_timeout);
    let prefill = match attempt.handover.dialect {
        Dialect::Sglang => Running::cancellable(leg),
        // If the leg were aborted, its decode worker would keep blocks for it until a timeout of its own.
        _ => Running::to_its_end(leg, attempt.dispatcher.background.clone()),
    };
    Ok(Transfer {
        handshake_params,
        prefill: Prefill::Running(prefill),
    })
}

async fn new_handshake(attempt: &PairAttempt<'_>) -> Result<HandshakeParams, AttemptError> {
    let member = &attempt.request.pool().workers.members[attempt.prefill.member];
    let unknown = || AttemptError::from(LegError::EngineUnknown);
    let bootstrap = member.bootstrap.as_ref().ok_or_else(unknown)?;
    let seed = attempt.request.seed();
    if attempt.handover.dialect == Dialect::Sglang {
        let port = bootstrap.port().wait(attempt.pd.spec.connect_timeout).await;
        return Ok(HandshakeParams::Sglang {
            host: bootstrap.host().into(),
            port: port.ok_or(LegError::PortUnknown)?,
            room: attempt.dispatcher.transfers.room(),
        });
    }
    let pinned = member.worker.spec().rank.map(|rank| rank.0);
    let engine = bootstrap
        .engine(pinned, seed, attempt.pd.spec.connect_timeout)
        .await;
    let (rank, engine_id) = engine.ok_or_else(unknown)?;
    Ok(HandshakeParams::Mooncake {
        transfer_id: attempt.dispatcher.transfers.transfer_id().into(),
        bootstrap: bootstrap.address().into(),
        engine_id,
        rank,
    })
}

impl HandshakeParams {
    fn rank(&self) -> Option<u16> {
        match self {
            Self::Mooncake { rank, .. } => Some(*rank),
            Self::Sglang { .. } => None,
        }
    }

    fn of(&self, attempt: &PairAttempt<'_>) -> Handshake<'_> {
        match self {
            Self::Mooncake {
                transfer_id,
                bootstrap,
                engine_id,
                ..
            } => Handshake::Mooncake {
                transfer_id,
                bootstrap,
                engine_id,
            },
            Self::Sglang { host, port, room } => Handshake::Sglang {
                host,
                port: *port,
                room: *room,
                prefill_rank: attempt::pinned_rank(attempt.request, attempt.prefill),
                decode_rank: attempt::pinned_rank(attempt.request, attempt.decode),
            },
        }
    }
}

fn decode_spec(attempt: &PairAttempt<'_>, handshake_params: &HandshakeParams) -> AttemptSpec {
    let request = attempt.request;
    AttemptSpec {
        choice: attempt.decode,
        leg: LegKind::Decode,
        lease: attempt::book_awaiting(request, attempt.decode),
        body: attempt.bodies.decode(&handshake_params.of(attempt)),
        rank: attempt::pinned_rank(request, attempt.decode),
        once: true,
        limits: attempt.decode_send_timeouts(),
        timeouts: attempt.decode_timeouts(),
    }
}

async fn send_decode(attempt: &PairAttempt<'_>, spec: AttemptSpec) -> Result<Box<BegunAnswer>, AttemptError> {
    let request = attempt.request;
    let answer = attempt::send(request, spec).await?;
    answer_check::accept(request, answer).await
}

/// Handles a failure of the decode worker while nothing counts against the prefill worker: its transfer may serve
/// another.
async fn decode_failed(attempt: &PairAttempt<'_>, mut transfer: Transfer, error: AttemptError) -> FailedLeg {
    if error.is_final() {
        transfer.prefill.awaited(false);
    }
    let has_prompt = transfer.prefill.has_prompt();
    if attempt.handover.dialect == Dialect::Mooncake && error.may_lack_the_prompt() {
        let failed = maybe_restarted(attempt, &transfer.handshake_params, error).await;
        return FailedLeg {
            has_prompt: has_prompt && failed.has_prompt,
            ..failed
        };
    }
    let again = attempt.handover.dialect == Dialect::Mooncake && error.nothing_was_used();
    FailedLeg {
        has_prompt,
        ..attempt.decode_failed(error, again.then_some(HandoverParams::Transfer(transfer)))
    }
}

/// Handles a decode worker's answer that may mean that the prefill worker's engine has restarted. If the prefill worker
/// now has another engine id, no worker is blamed and a new handshake begins. The prompt that the old engine had
/// computed is lost.
async fn maybe_restarted(
    attempt: &PairAttempt<'_>,
    handshake_params: &HandshakeParams,
    error: AttemptError,
) -> FailedLeg {
    mark_engine_ids_stale(attempt);
    let fresh = new_handshake(attempt).await;
    let (HandshakeParams::Mooncake { engine_id, rank, .. }, Ok(fresh)) = (handshake_params, fresh) else {
        return attempt.decode_failed(error, None);
    };
    let has_moved = matches!(&fresh, HandshakeParams::Mooncake { engine_id: id, rank: of, .. } if of == rank && id != engine_id);
    if !has_moved {
        return attempt.decode_failed(error, None);
    }
    let member = &attempt.request.pool().workers.members[attempt.prefill.member];
    let worker = &*member.worker.spec().name;
    info!(
        worker,
        "a prefill worker has restarted; its new engine id is used"
    );
    attempt.prefill_failed(LegError::EngineRestarted.into())
}

/// Marks the engine ids of the prefill worker as possibly stale.
fn mark_engine_ids_stale(attempt: &PairAttempt<'_>) {
    let member = &attempt.request.pool().workers.members[attempt.prefill.member];
    if let Some(bootstrap) = &member.bootstrap {
        bootstrap.doubt();
    }
}

fn together(attempt: &PairAttempt<'_>, answer: Box<BegunAnswer>, prefill: Prefill) -> SplitAnswer {
    let (mut correction, mut rest) = (None, None);
    // No decode worker takes over the prompt of a leg that still runs then: the leg is cancelled.
    let is_cancelled = matches!(prefill, Prefill::Running(_)) && answer.response.status().is_client_error();
    match prefill {
        Prefill::Done(done) => {
            let prefilled = PrefillAnswer::read(&done.answer).ok();
            correction = attempt.correction(prefilled);
        }
        Prefill::Running(_) if is_cancelled => {}
        Prefill::Running(mut leg) => {
            correction = attempt.correction(None);
            leg.awaited = false;
            let leg = async { drop(leg.await) };
            rest = Some(tasks::spawn_guarded(
                &attempt.dispatcher.background,
                "prefill",
                leg,
            ));
        }
    }
    SplitAnswer {
        answer,
        prefill: Box::new(PrefillLeg {
            member: Some(attempt.prefill.member),
            has_prompt: !is_cancelled,
            correction,
            rest,
        }),
    }
}
