//! Seam for front ends that send requests to workers themselves.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use inference_api::{Endpoint, EndpointWork};
use placement::WorkerChoice;
use worker_client::{Authorization, SendError, X_DATA_PARALLEL_RANK};

use super::answer_handle::{AnswerHandle, AnswerHead};
use super::arrival::{ClientArrival, ClientHeaders};
use super::failures::{AnswerFailure, SendFailure};
use super::header_changes::HeaderChanges;
use super::open::{ArrivedRequest, OpenRequest, open};
use crate::base::deadline::within;
use crate::base::headers::{TRACEPARENT, strip_hop_by_hop};
use crate::base::reply::{self, Refusal};
use crate::dispatch::answer_check::{count_refusal, read_refusal};
use crate::dispatch::attempt::{AttemptSpec, BegunAttempt, DecisionReport};
use crate::dispatch::attempt_error::{AttemptError, AttemptFailure, is_retryable_status};
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::retry;
use crate::dispatch::session::PlacementSession;
use crate::limits::edge_settings::ResponseLimits;
use crate::proxy::Proxy;
use crate::request::lifecycle::RequestLifecycle;
use crate::request::responses;
use crate::request::snapshot::Snapshot;
use crate::request::stream::decision_headers;

/// Placement service of a front end that sends requests to workers itself.
///
/// Authentication, rate limits, routing, tokenization, admission, the decision, health and metrics are those of the
/// HTTP front end. A request is sent to one worker: in a pool that splits every request it is refused.
#[derive(Debug, Clone)]
pub struct Place {
    proxy: Arc<Proxy>,
}

/// Request that was placed on a worker, for one attempt.
pub struct Placed {
    /// Worker that the request is sent to.
    pub worker: PlacedWorker,
    /// Changes of the client's headers. `Host` and `Content-Length` are the front end's own.
    pub headers: HeaderChanges,
    /// Body that is sent.
    pub body: Bytes,
    /// Time limits of the attempt.
    pub timeouts: AttemptTimeouts,
    /// Handle that is given the result of the attempt.
    pub handle: PlacedHandle,
}

/// Worker of a placed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedWorker {
    /// Name of the worker in the configuration.
    pub name: Box<str>,
    /// URL of the worker.
    pub url: Box<str>,
}

/// Time limits of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptTimeouts {
    /// Limit for opening a connection.
    pub connect: Duration,
    /// Limit from sending to the response head.
    pub first_byte: Duration,
    /// Limit from sending to the first chunk of the body.
    pub first_chunk: Duration,
    /// Longest silence within the body.
    pub idle: Duration,
    /// Deadline of the whole request, where it is limited.
    pub deadline: Option<Instant>,
    /// Expected time to the first token of an answer in one piece, which hides it: see
    /// [`PlacedHandle::assume_prefilled`]. `None` where it is not needed.
    pub expected_prefill: Option<Duration>,
}

/// Handle of an attempt whose result is not known yet. Its drop counts as a client that left, or after the deadline as
/// a timeout. It returns the load lease, then the admission permit.
pub struct PlacedHandle {
    attempt: BegunAttempt,
    report: DecisionReport,
    placement: OpenPlacement,
}

/// Placement of a request over all its attempts.
struct OpenPlacement {
    proxy: Arc<Proxy>,
    /// The client's headers, as they arrived.
    original: HeaderMap,
    client: ClientHeaders,
    request: Arc<InferenceRequest>,
    /// `None` once the placement has ended.
    progress: Option<PlacementProgress>,
}

/// Parts of a placement that its end takes.
#[derive(Debug)]
struct PlacementProgress {
    session: PlacementSession,
    lifecycle: Box<RequestLifecycle>,
    response_limits: ResponseLimits,
}

/// Answer that has begun.
#[derive(Debug)]
pub struct AnswerStart {
    /// Handle that is given the chunks and the end.
    pub handle: AnswerHandle,
    /// Changes of the worker's response headers.
    pub headers: HeaderChanges,
}

// The debug texts have no prompt, and no header.
impl fmt::Debug for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placed")
            .field("worker", &self.worker)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PlacedHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = &self.placement.request.head.id;
        f.debug_struct("PlacedHandle")
            .field("id", id)
            .finish_non_exhaustive()
    }
}

impl Place {
    /// Makes the service of a router.
    #[must_use]
    pub fn new(proxy: Arc<Proxy>) -> Self {
        Self { proxy }
    }

    /// Places a request whose body was read in full.
    ///
    /// # Errors
    /// The response to a client whose request is refused. It has been counted.
    pub async fn place(
        &self,
        head: Parts,
        from: Option<IpAddr>,
        body: Bytes,
    ) -> Result<Placed, Box<Response<Bytes>>> {
        let original = head.headers.clone();
        let (shape, snapshot) = (reply::shape_of(head.uri.path()), self.proxy.snapshots.load());
        let endpoint = endpoint_of(&self.proxy, &snapshot, &head)
            .map_err(|refusal| Box::new(reply::refuse_in(shape, None, &refusal)))?;
        let class = endpoint.spec().class;
        let arrival = ClientArrival::new(&self.proxy, &snapshot, endpoint, head, from);
        let (client, access) = (arrival.client, arrival.head.watch.access.clone());
        let spans = arrival.head.watch.spans.clone();
        let refused = |refusal: Refusal| {
            access.refused(&refusal);
            spans.refused(&refusal);
            refuse(&client, &refusal)
        };
        let reservation = arrival.reservation.map_err(|refusal| {
            self.proxy.metrics.dispatch.unrouted(class, &refusal);
            refused(refusal)
        })?;
        let limit = snapshot.limits.body_bytes;
        if body.len() > limit {
            let refusal = self.proxy.unrouted(class, Refusal::BodyTooLarge { limit });
            return Err(refused(refusal));
        }
        let arrived = ArrivedRequest {
            head: arrival.head,
            body,
            reservation,
            may_split: false,
        };
        let opened = open(&self.proxy, &snapshot, arrived).await;
        let OpenRequest {
            request,
            mut lifecycle,
            response_limits,
        } = opened.map_err(refused)?;
        drop(snapshot);
        lifecycle.placing(&request);
        let placement = OpenPlacement {
            proxy: Arc::clone(&self.proxy),
            original,
            client,
            progress: Some(PlacementProgress {
                session: PlacementSession::new(Arc::clone(&request)),
                lifecycle,
                response_limits,
            }),
            request,
        };
        placement.next(None).await
    }
}

/// Returns the endpoint of a request that a model answers, unless the router is short of memory or shuts down.
fn endpoint_of(proxy: &Proxy, snapshot: &Snapshot, head: &Parts) -> Result<Endpoint, Refusal> {
    let path = head.uri.path();
    let served = |endpoint: &Endpoint| {
        let spec = endpoint.spec();
        !spec.upgrades && matches!(spec.work, EndpointWork::Model)
    };
    let endpoint = Endpoint::of_path(path).filter(served);
    let endpoint = endpoint.or_else(|| snapshot.edge.forwards(path).then_some(Endpoint::Forwarded));
    let endpoint = endpoint.ok_or_else(|| Refusal::UnknownPath {
        path: reply::cut(path),
    })?;
    if head.method != endpoint.method() {
        return Err(Refusal::WrongMethod {
            path: reply::cut(path),
            allow: endpoint.method(),
        });
    }
    if proxy.readiness.is_cutting() {
        return Err(Refusal::ShuttingDown);
    }
    if snapshot.edge.memory.refuses() {
        proxy.metrics.edge.refused(&Refusal::MemoryFull);
        return Err(Refusal::MemoryFull);
    }
    proxy.metrics.edge.came_for(endpoint.spec().class);
    Ok(endpoint)
}

fn refuse(client: &ClientHeaders, refusal: &Refusal) -> Box<Response<Bytes>> {
    let mut response = client.refuse(refusal);
    client.set(response.headers_mut());
    Box::new(response)
}

impl OpenPlacement {
    /// Decides on a worker, and takes its load lease. `failure`: the failure of the attempt before.
    async fn next(mut self, failure: Option<AttemptFailure>) -> Result<Placed, Box<Response<Bytes>>> {
        let Some(progress) = &mut self.progress else {
            return Err(self.refused(Refusal::RequestTimeout));
        };
        let (session, dispatcher) = (&mut progress.session, &self.proxy.dispatcher);
        let deadline = session.deadline();
        let step = async {
            if let Some(failure) = failure {
                session.failed(dispatcher, failure).await?;
            }
            session.next(dispatcher).await
        };
        match within(deadline, step).await {
            Ok(placement) => Ok(self.begin(placement.answers)),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    fn begin(self, choice: WorkerChoice) -> Placed {
        let request = Arc::clone(&self.request);
        let pool = request.pool();
        let member = &pool.workers.members[choice.member];
        let spec = AttemptSpec::whole(&request, choice);
        let mut headers = HeaderChanges::between(&self.original, &request.head.headers);
        match &pool.workers.authorization {
            Authorization::Pass => {}
            Authorization::Drop => headers.set(AUTHORIZATION, None),
            Authorization::Own(key) => headers.set(AUTHORIZATION, Some(key.clone())),
        }
        if let Some(rank) = spec.rank {
            headers.set(X_DATA_PARALLEL_RANK, Some(rank.into()));
        }
        let expected = spec.lease.expected_ttft();
        let attempt = BegunAttempt::begin(&request, choice, spec.lease, spec.leg);
        if let Some(parent) = attempt.span.header() {
            headers.set(TRACEPARENT, Some(parent.clone()));
        }
        Placed {
            worker: PlacedWorker {
                name: member.worker.spec().name.clone(),
                url: member.worker.spec().url.clone(),
            },
            headers,
            body: spec.body,
            timeouts: AttemptTimeouts {
                connect: spec.limits.connect,
                first_byte: spec.limits.first_byte,
                first_chunk: spec.timeouts.first_byte,
                idle: spec.timeouts.idle,
                deadline: spec.timeouts.deadline,
                expected_prefill: expected.filter(|_| !request.params.stream),
            },
            handle: PlacedHandle {
                report: DecisionReport::of(&request, choice),
                attempt,
                placement: self,
            },
        }
    }

    /// Ends a request that no worker answers.
    fn refused(mut self, refusal: Refusal) -> Box<Response<Bytes>> {
        let Some(mut progress) = self.progress.take() else {
            return refuse(&self.client, &refusal);
        };
        drop(progress.session.end(false));
        progress.lifecycle.was_sent(&self.request.progress);
        let refusal = progress.lifecycle.refused(refusal);
        refuse(&self.client, &refusal)
    }
}

impl Drop for OpenPlacement {
    fn drop(&mut self) {
        if let Some(mut progress) = self.progress.take() {
            progress.lifecycle.was_sent(&self.request.progress);
            drop(progress.session.end(false));
        }
    }
}

impl PlacedHandle {
    /// Takes the prompt for computed, when `expected_prefill` has passed since the dispatch without an answer.
    pub fn assume_prefilled(&mut self) {
        self.attempt.lease.take_for_computed();
    }

    /// Returns `true` if another worker is tried instead of an answer of this status. The retry is charged to the
    /// budget of the pool. The front end then reads the body and calls [`PlacedHandle::failed`] with
    /// [`SendFailure::Refused`]; else it calls [`PlacedHandle::status`].
    #[must_use]
    pub fn retries_status(&self, status: StatusCode) -> bool {
        let request = &self.placement.request;
        let Some(progress) = &self.placement.progress else {
            return false;
        };
        if request.pool().pd.is_some() {
            return request.progress.pinned.is_none() && is_retryable_status(status);
        }
        retry::charge_status_retry(request, status, progress.session.tries())
    }

    /// Records the head of the worker's answer, which goes to the client.
    #[must_use]
    pub fn status(self, status: StatusCode, headers: &HeaderMap) -> AnswerStart {
        let Self {
            mut placement,
            attempt,
            report,
        } = self;
        let request = Arc::clone(&placement.request);
        attempt.answered(&request.pool().workers, status, headers);
        let mut shown = headers.clone();
        strip_hop_by_hop(&mut shown);
        placement.client.set(&mut shown);
        let head = AnswerHead {
            status,
            headers,
            has_length: headers.contains_key(CONTENT_LENGTH),
            connected: None,
        };
        let (endpoint, member) = (request.head.endpoint, attempt.member);
        let handle = placement.progress.take().map(|mut progress| {
            progress
                .session
                .answered(&placement.proxy.dispatcher, status, None);
            let mut lifecycle = progress.lifecycle;
            lifecycle.admit(progress.session.end(true), request.pool());
            decision_headers(&mut shown, &report, member, None, &lifecycle);
            let learner = responses::learner(&placement.proxy, &request, progress.response_limits, member);
            let mut handle = AnswerHandle::status(lifecycle, attempt, endpoint, head);
            handle.learn(learner, status);
            handle
        });
        AnswerStart {
            headers: HeaderChanges::between(headers, &shown),
            handle: handle.expect("a placement ends once: its handle is taken by value"),
        }
    }

    /// Records an attempt without an answer, and places the request once more after the pause of the pool's retry
    /// rules.
    ///
    /// # Errors
    /// The response to the client of a request that is not tried again.
    pub async fn failed(self, failure: SendFailure) -> Result<Placed, Box<Response<Bytes>>> {
        let Self {
            attempt, placement, ..
        } = self;
        let request = Arc::clone(&placement.request);
        let member = &request.pool().workers.members[attempt.member];
        let error = match failure.into_error(&member.worker.spec().url) {
            Ok(error) => {
                // The front end opened the connection itself.
                if let SendError::Connect(error) = &error {
                    member.link.upstream.note_failure(error);
                }
                attempt.failed(&request.pool().workers, &request, &error, false);
                AttemptError::Forward(error)
            }
            Err(response) => {
                let status = response.status();
                attempt.answered(&request.pool().workers, status, response.headers());
                count_refusal(member, &attempt.lease, status);
                let error = read_refusal(&request, member, attempt.token, *response);
                // In another pool, `retries_status` has charged the retry.
                match request.pool().pd {
                    Some(_) => error,
                    None => error.held_back(),
                }
            }
        };
        // The lease is returned before the next decision, which sees the lower load.
        drop(attempt);
        let failure = AttemptFailure {
            blamed: Some(member.worker.id()),
            suspected: None,
            has_prompt: !error.left_no_prompt(),
            error,
        };
        placement.next(Some(failure)).await
    }
}

impl AnswerHandle {
    /// Records that the answer was read to its end.
    pub fn complete(mut self) {
        self.end();
    }

    /// Records that the answer broke off.
    pub fn failed(mut self, failure: AnswerFailure) {
        self.broke_off(&failure.into());
    }
}
