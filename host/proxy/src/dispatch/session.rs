//! Placement of one request over all its attempts: admission, decisions, and the failures so far.
//!
//! A front end calls [`PlacementSession::next`] for a placement, sends the request there, and reports a failed attempt
//! by [`PlacementSession::failed`]. It then calls `next` again.

use std::sync::Arc;

use http::StatusCode;
use kv_index::Prediction;
use placement::{AttemptState, PlacementOutcome, WorkerPlacement};
use tokio::time::Instant;

use crate::base::reply::Refusal;
use crate::dispatch::attempt::BegunAnswer;
use crate::dispatch::attempt_error::{AttemptError, AttemptFailure, leaves_no_prompt};
use crate::dispatch::crashes;
use crate::dispatch::decide;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::failures::FailedAttempts;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::router_view::HoldWindow;
use crate::dispatch::single;
use crate::dispatch::speculative_insert;
use crate::dispatch::split::{self, KeptPrompt, PrefillLeg, SplitAnswer, WorkerPair};
use crate::fleet::catalog::{self, UnservedModel};
use crate::limits::admission::{AdmissionSession, Permit, start_deadline};
use crate::observe::stages::RequestStage;

/// Placement of one request.
#[derive(Debug)]
pub(crate) struct PlacementSession {
    request: Arc<InferenceRequest>,
    admission: AdmissionSession,
    failures: FailedAttempts,
    prompt: KeptPrompt,
    /// Prediction for the worker that computes the prompt.
    prediction: Option<Prediction>,
    attempt: u32,
    /// Time by which the answer must have begun.
    deadline: Option<Instant>,
    blame: CrashBlame,
}

/// Settles the blame for closed connections when it is dropped, also after a client's departure.
#[derive(Debug)]
struct CrashBlame {
    request: Arc<InferenceRequest>,
    is_answered: bool,
}

impl Drop for CrashBlame {
    fn drop(&mut self) {
        let request = &self.request;
        let crashes = &request.progress.crashes;
        crashes::settle(
            crashes,
            &request.pool().workers,
            &request.head.id,
            self.is_answered,
        );
    }
}

/// Answer of a request that was sent where it was placed.
#[derive(Debug)]
pub(crate) struct PlacedAnswer {
    pub(crate) answer: Box<BegunAnswer>,
    /// Prefill leg of a request that was split.
    pub(crate) prefill: Option<Box<PrefillLeg>>,
}

impl PlacementSession {
    /// Creates the session of a request that has not been admitted yet.
    pub(crate) fn new(request: Arc<InferenceRequest>) -> Self {
        let whole = request.deadline().map(Instant::from_std);
        let deadline = whole
            .into_iter()
            .chain(start_deadline(&request.admission()))
            .min();
        request.pool().retries.budget.earn();
        Self {
            admission: AdmissionSession::new(deadline),
            failures: FailedAttempts::default(),
            prompt: KeptPrompt::default(),
            prediction: None,
            attempt: 0,
            deadline,
            blame: CrashBlame {
                request: Arc::clone(&request),
                is_answered: false,
            },
            request,
        }
    }

    /// Returns the time by which the answer must have begun.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Places the request and sends it, until a worker answers.
    pub(crate) async fn dispatch(&mut self, dispatcher: &Dispatcher) -> Result<PlacedAnswer, Refusal> {
        loop {
            let placement = self.next(dispatcher).await?;
            match self.send(dispatcher, placement).await {
                Ok(placed) => {
                    let status = placed.answer.response.status();
                    self.answered(dispatcher, status, placed.prefill.as_deref());
                    return Ok(placed);
                }
                Err(failure) => self.failed(dispatcher, failure).await?,
            }
        }
    }

    /// Admits the request and decides where it is sent. A request that its policy holds waits.
    pub(crate) async fn next(&mut self, dispatcher: &Dispatcher) -> Result<WorkerPlacement, Refusal> {
        let request = Arc::clone(&self.request);
        // Time from which the request can be decided.
        let mut ready = std::time::Instant::now();
        if self.attempt == 0 {
            let entered = self.admission.enter(&request.admission()).await;
            ready = self.waited(ready);
            entered?;
        }
        loop {
            if self.admission.is_held() {
                self.follow().await;
            }
            let released = request.pool().queue.controller.releases();
            let outcome = match request.progress.pinned {
                Some(member) => Ok(PlacementOutcome::Dispatch(WorkerPlacement::alone(member))),
                None => self.decide(dispatcher, ready),
            };
            let outcome = match outcome {
                Ok(outcome) => outcome,
                // No worker takes over the computed prompt. The request begins again.
                Err(_) if self.prompt.forget() || self.failures.forgive() => continue,
                Err(_) if self.may_move() && request.pool.follow(&request.params.model).await => continue,
                Err(none) => return Err(self.failures.refusal(none, &request)),
            };
            self.attempt += 1;
            match outcome {
                PlacementOutcome::Dispatch(placement) => {
                    let is_first = self.failures.count == 0;
                    self.admission.send(&request.admission(), &placement, is_first)?;
                    self.expect_prompt(dispatcher, &placement);
                    self.log_attempt(&placement);
                    return Ok(placement);
                }
                PlacementOutcome::Hold(terms) => {
                    let started = std::time::Instant::now();
                    // A change before `released` was read does not wake the request.
                    if self.follow().await {
                        ready = started;
                        continue;
                    }
                    let held = self.admission.hold(&request.admission(), terms, released).await;
                    ready = self.waited(started);
                    held?;
                }
                PlacementOutcome::Reject(rejection) => {
                    let is_shown = request.settings.decision_headers;
                    let policy = is_shown.then(|| request.progress.decided_by.header()).flatten();
                    return Err(Refusal::Rejected { rejection, policy });
                }
            }
        }
    }

    /// Moves the request to the present policies of its route and the present workers of its pool. Returns `true` if
    /// one of them is another.
    async fn follow(&mut self) -> bool {
        let has_policies_moved = self.request.policies.follow();
        let model = &self.request.params.model;
        has_policies_moved | (self.may_move() && self.request.pool.follow(model).await)
    }

    /// Returns `true` unless the state of the request names members of its present pool.
    fn may_move(&self) -> bool {
        let progress = &self.request.progress;
        progress.pinned.is_none() && self.prompt.prefill().is_none() && progress.crashes.count() == 0
    }

    /// Records a wait in the queue. Returns its end.
    fn waited(&self, started: std::time::Instant) -> std::time::Instant {
        let watch = &self.request.head.watch;
        let ended = watch.took(RequestStage::Queue, started);
        watch.spans.waited_as(|| self.request.admission().class());
        ended
    }

    /// Decides about the request. `started` is the beginning of the stage.
    fn decide(
        &self,
        dispatcher: &Dispatcher,
        started: std::time::Instant,
    ) -> Result<PlacementOutcome, placement::NoCandidate> {
        let state = AttemptState {
            attempt: self.attempt,
            tried: &self.failures.excluded,
            is_held: self.admission.is_held(),
        };
        let window = HoldWindow {
            turn: self.admission.turn(),
            deadline: self.deadline,
            charged: self.admission.charged(),
        };
        let (part, failures) = (self.prompt.part(), self.failures.count);
        let decided = decide::decide(dispatcher, &self.request, part, state, window, failures);
        self.request.head.watch.took(RequestStage::Decide, started);
        decided
    }

    /// Records an attempt and its workers in the access log.
    fn log_attempt(&self, placement: &WorkerPlacement) {
        self.request.head.watch.access.update(|line| {
            let members = &self.request.pool().workers.members;
            let name = |member: usize| members[member].worker.spec().name.clone();
            let prefill = self.prompt.prefill().or(placement.prefills);
            line.placement.worker = Some(name(placement.answers.member));
            line.placement.prefill_worker = prefill.map(|choice| name(choice.member));
            *line.placement.attempts.get_or_insert(0) += 1;
        });
    }

    /// Records in the index that the worker which computes the prompt will hold it. The decode worker of a pair gets
    /// the prompt later.
    fn expect_prompt(&mut self, dispatcher: &Dispatcher, placement: &WorkerPlacement) {
        let kept = self.prompt.prefill();
        // A kept prompt is not computed again. Its expectation was taken back if its leg could have been cancelled.
        if kept.is_some() && self.prediction.is_some() {
            return;
        }
        let computes = kept.or(placement.prefills).unwrap_or(placement.answers);
        let worker = self.request.pool().workers.members[computes.member].worker.id();
        self.prediction = speculative_insert::expect(&dispatcher.sources, &self.request, worker);
    }

    /// Takes back the expectation of a worker that did not compute the prompt.
    fn retract_prompt(&mut self, dispatcher: &Dispatcher) {
        if let Some(prediction) = self.prediction.take() {
            speculative_insert::retract(&dispatcher.sources, &self.request, prediction);
        }
    }

    /// Records the status of the answer that goes to the client. `prefill` is the leg of a request that was split.
    pub(crate) fn answered(
        &mut self,
        dispatcher: &Dispatcher,
        status: StatusCode,
        prefill: Option<&PrefillLeg>,
    ) {
        let has_prompt = prefill.map_or(!leaves_no_prompt(status), |leg| leg.has_prompt);
        if !has_prompt {
            self.retract_prompt(dispatcher);
        }
    }

    /// Sends the request to the workers it was placed on.
    async fn send(
        &mut self,
        dispatcher: &Dispatcher,
        placement: WorkerPlacement,
    ) -> Result<PlacedAnswer, AttemptFailure> {
        if let Some(prefill) = self.prompt.prefill().or(placement.prefills) {
            let pair = WorkerPair {
                prefill,
                decode: placement.answers,
            };
            // On the heap: plain requests would carry its room.
            let sent = Box::pin(split::send(dispatcher, &self.request, pair, &mut self.prompt));
            if let Some(sent) = sent.await {
                return sent.map(|SplitAnswer { answer, prefill }| PlacedAnswer {
                    answer,
                    prefill: Some(prefill),
                });
            }
        }
        let answer = single::send(&self.request, placement.answers, self.tries()).await?;
        Ok(PlacedAnswer {
            answer,
            prefill: None,
        })
    }

    /// Returns the number of attempts, the present one included.
    pub(crate) fn tries(&self) -> u32 {
        self.failures.count + 1
    }

    /// Records a failed attempt. Returns after the pause before the next one.
    ///
    /// # Errors
    /// The refusal of a request that is not tried again.
    pub(crate) async fn failed(
        &mut self,
        dispatcher: &Dispatcher,
        failure: AttemptFailure,
    ) -> Result<(), Refusal> {
        if !failure.has_prompt {
            self.retract_prompt(dispatcher);
        }
        let request = &self.request;
        // No other worker has the response that a pinned request goes on from.
        if request.progress.pinned.is_some() {
            return Err(failure.error.into());
        }
        if let (AttemptError::NotServed(_), Some(worker)) = (&failure.error, failure.blamed) {
            let unserved = UnservedModel {
                model: &request.params.model,
                served: request.served(),
                worker,
            };
            let (pool, excluded) = (&request.pool().workers, &self.failures.excluded);
            catalog::after_not_found(&dispatcher.background, pool, unserved, excluded).await;
        }
        tokio::time::sleep(self.failures.add(failure, request)?).await;
        Ok(())
    }

    /// Ends the placement. Returns the permit, which is held until the response ends.
    pub(crate) fn end(mut self, is_answered: bool) -> Option<Permit> {
        self.blame.is_answered = is_answered;
        self.admission.into_permit()
    }
}
