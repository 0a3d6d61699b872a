//! Seam for front ends that send requests to workers themselves.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use inference_api::{Endpoint, EndpointWork, ErrorShape};
use placement::WorkerChoice;
use worker_client::{ConnectError, SendError, X_DATA_PARALLEL_RANK};

use super::answer_handle::{AnswerHandle, AnswerHead};
use super::arrival::ClientArrival;
use super::header_changes::HeaderChanges;
use super::open::{ArrivedRequest, OpenRequest, open};
use crate::base::headers::{X_REQUEST_ID, strip_hop_by_hop};
use crate::base::reply::{self, Refusal};
use crate::dispatch::attempt::{AttemptSpec, BegunAttempt, DecisionReport};
use crate::dispatch::attempt_error::{AttemptError, AttemptFailure};
use crate::dispatch::session::PlacementSession;
use crate::proxy::Proxy;
use crate::request::relay_error::RelayError;
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
    /// Longest silence within the body.
    pub idle: Duration,
}

/// Handle of an attempt whose result is not known yet. Its drop counts as a client that left, and returns the load
/// lease and the admission permit.
pub struct PlacedHandle {
    placement: OpenPlacement,
    attempt: BegunAttempt,
    report: DecisionReport,
}

/// Placement of a request over all its attempts.
struct OpenPlacement {
    proxy: Arc<Proxy>,
    /// The client's headers, as they arrived.
    original: HeaderMap,
    opened: OpenRequest,
    session: PlacementSession,
}

/// Answer that has begun.
#[derive(Debug)]
pub struct AnswerStart {
    /// Handle that is given the chunks and the end.
    pub handle: AnswerHandle,
    /// Changes of the worker's response headers.
    pub headers: HeaderChanges,
}

/// Attempt that brought no answer for the client.
#[derive(Debug)]
pub enum SendFailure {
    /// No connection could be opened.
    Unreachable(io::Error),
    /// The worker closed the connection before the response head.
    Closed,
    /// No response head came within this time.
    Timeout(Duration),
    /// The worker answered with a status that another worker may not have.
    Status(StatusCode),
}

/// Answer that did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFailure {
    /// The worker broke off the body.
    Broken,
    /// Nothing came for this time.
    Idle(Duration),
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
        let id = &self.placement.opened.request.head.id;
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
        let endpoint = endpoint_of(&head).map_err(|refusal| refuse(shape, None, &refusal))?;
        let arrival = ClientArrival::new(&self.proxy, &snapshot, endpoint, head, from);
        let id = arrival.head.id.clone();
        let refused = |refusal: Refusal| refuse(shape, Some(&id), &refusal);
        let reservation = arrival.reservation.map_err(|refusal| {
            self.proxy.metrics.dispatch.pools.unrouted(refusal.outcome());
            refused(refusal)
        })?;
        let limit = snapshot.limits.body_bytes;
        if body.len() > limit {
            return Err(refused(self.proxy.unrouted(Refusal::BodyTooLarge { limit })));
        }
        let arrived = ArrivedRequest {
            head: arrival.head,
            body,
            reservation,
            may_split: false,
        };
        let opened = open(&self.proxy, &snapshot, arrived).await.map_err(refused)?;
        let placement = OpenPlacement {
            proxy: Arc::clone(&self.proxy),
            original,
            session: PlacementSession::new(Arc::clone(&opened.request)),
            opened,
        };
        drop(snapshot);
        placement.next().await
    }
}

/// Returns the endpoint of a request that a model answers.
fn endpoint_of(head: &Parts) -> Result<Endpoint, Refusal> {
    let path = head.uri.path();
    let served = |endpoint: &Endpoint| {
        let spec = endpoint.spec();
        !spec.upgrades && matches!(spec.work, EndpointWork::Model)
    };
    let endpoint = Endpoint::of_path(path).filter(served);
    let endpoint = endpoint.ok_or_else(|| Refusal::UnknownPath {
        path: reply::cut(path),
    })?;
    if head.method != endpoint.method() {
        return Err(Refusal::WrongMethod {
            path: reply::cut(path),
            allow: endpoint.method(),
        });
    }
    Ok(endpoint)
}

fn refuse(shape: ErrorShape, id: Option<&HeaderValue>, refusal: &Refusal) -> Box<Response<Bytes>> {
    let mut response = reply::refuse_in(shape, id, refusal);
    if let Some(id) = id {
        response.headers_mut().insert(X_REQUEST_ID, id.clone());
    }
    Box::new(response)
}

impl OpenPlacement {
    /// Decides on a worker, and takes its load lease.
    async fn next(mut self) -> Result<Placed, Box<Response<Bytes>>> {
        let deadline = self.session.deadline();
        let placing = self.session.next(&self.proxy.dispatcher);
        let placed = match deadline {
            None => placing.await,
            Some(deadline) => {
                let placed = tokio::time::timeout_at(deadline, placing).await;
                placed.unwrap_or(Err(Refusal::RequestTimeout))
            }
        };
        match placed {
            Ok(placement) => Ok(self.begin(placement.answers)),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    fn begin(self, choice: WorkerChoice) -> Placed {
        let request = Arc::clone(&self.opened.request);
        let member = &request.pool().workers.members[choice.member];
        let spec = AttemptSpec::whole(&request, choice);
        let mut headers = HeaderChanges::between(&self.original, &request.head.headers);
        if let Some(rank) = spec.rank {
            headers.remove.push(X_DATA_PARALLEL_RANK);
            headers.add.push((X_DATA_PARALLEL_RANK, rank.into()));
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
                idle: spec.timeouts.idle,
            },
            handle: PlacedHandle {
                report: DecisionReport::of(&request, choice),
                attempt: BegunAttempt::begin(&request, choice, spec.lease),
                placement: self,
            },
        }
    }

    /// Ends a request that no worker answers.
    fn refused(self, refusal: Refusal) -> Box<Response<Bytes>> {
        let (request, mut lifecycle) = (self.opened.request, self.opened.lifecycle);
        drop(self.session.end(false));
        lifecycle.was_sent(&request.progress);
        let refusal = lifecycle.refused(refusal);
        let shape = request.head.endpoint.spec().errors;
        refuse(shape, Some(&request.head.id), &refusal)
    }
}

impl PlacedHandle {
    /// Records the head of the worker's answer, which goes to the client.
    #[must_use]
    pub fn status(self, status: StatusCode, headers: &HeaderMap) -> AnswerStart {
        let Self {
            placement,
            attempt,
            report,
        } = self;
        let OpenRequest {
            request,
            mut lifecycle,
            ..
        } = placement.opened;
        attempt.answered(&request.pool().workers, status, headers);
        lifecycle.admit(placement.session.end(true));
        let mut shown = headers.clone();
        strip_hop_by_hop(&mut shown);
        decision_headers(&mut shown, &report, attempt.member, None, &lifecycle);
        if let Some(caller) = &request.sender.caller {
            caller.set_ratelimit_headers(&mut shown);
        }
        shown.insert(X_REQUEST_ID, request.head.id.clone());
        let head = AnswerHead {
            status,
            headers,
            has_length: headers.contains_key(http::header::CONTENT_LENGTH),
        };
        AnswerStart {
            headers: HeaderChanges::between(headers, &shown),
            handle: AnswerHandle::status(lifecycle, attempt, request.head.endpoint, head),
        }
    }

    /// Records an attempt without an answer, and places the request once more after the pause of the pool's retry
    /// rules.
    ///
    /// # Errors
    /// The response to the client of a request that is not tried again.
    pub async fn failed(self, failure: SendFailure) -> Result<Placed, Box<Response<Bytes>>> {
        let Self {
            mut placement,
            attempt,
            ..
        } = self;
        let request = Arc::clone(&placement.opened.request);
        let worker = &request.pool().workers.members[attempt.member].worker;
        let error = match failure.into_error(&worker.spec().url) {
            Ok(error) => {
                attempt.failed(&request, &error, false);
                AttemptError::Forward(error)
            }
            Err(status) => {
                attempt.answered(&request.pool().workers, status, &HeaderMap::new());
                attempt.lease.failed();
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = status;
                AttemptError::Refused(Box::new(response))
            }
        };
        // The lease is returned before the next decision, which sees the lower load.
        drop(attempt);
        let failure = AttemptFailure {
            blamed: Some(worker.id()),
            suspected: None,
            error,
        };
        let dispatcher = &placement.proxy.dispatcher;
        match placement.session.failed(dispatcher, failure).await {
            Ok(()) => placement.next().await,
            Err(refusal) => Err(placement.refused(refusal)),
        }
    }
}

impl SendFailure {
    /// Returns the error, or the status of a worker's answer.
    fn into_error(self, url: &str) -> Result<SendError, StatusCode> {
        Ok(match self {
            Self::Unreachable(source) => SendError::Connect(ConnectError::Io {
                address: url.into(),
                source,
            }),
            Self::Closed => SendError::Closed(None),
            Self::Timeout(limit) => SendError::FirstByteTimeout(limit),
            Self::Status(status) => return Err(status),
        })
    }
}

impl From<AnswerFailure> for RelayError {
    fn from(failure: AnswerFailure) -> Self {
        match failure {
            AnswerFailure::Broken => Self::Broken(None),
            AnswerFailure::Idle(limit) => Self::Idle(limit),
        }
    }
}

impl AnswerHandle {
    /// Records that the answer broke off.
    pub fn failed(mut self, failure: AnswerFailure) {
        self.broke_off(&failure.into());
    }
}
