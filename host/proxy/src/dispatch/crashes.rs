//! Poison-request detection: workers that closed a fresh connection on a request without an answer.
//!
//! If another worker answers the request, the earlier workers failed. If the next worker closes its connection as well,
//! the request is taken to be at fault. Such a request is not sent to the rest of the pool. Its clients must not get
//! the pool ejected by sending it again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use http::HeaderValue;
use thiserror::Error;
use tracing::warn;

use crate::base::request_id::RequestId;
use crate::fleet::health::AttemptToken;
use crate::fleet::pool::WorkerPool;

/// Closed connections of one request.
#[derive(Debug, Default)]
pub(crate) struct Crashes(Mutex<Vec<Crash>>);

#[derive(Debug, Clone, Copy)]
struct Crash {
    /// Index into the pool's members.
    member: usize,
    dispatch: AttemptToken,
}

/// Error of a worker that closed the connection on a request that is not at fault.
#[derive(Debug, Error)]
#[error("get an answer: the worker closed the connection before its first byte")]
struct ClosedOnRequest;

impl Crashes {
    /// Records that a worker closed the connection.
    pub(crate) fn add(&self, member: usize, dispatch: AttemptToken) {
        self.lock().push(Crash { member, dispatch });
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Crash>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settles the blame once a request's placement has ended: the workers that closed the connection failed, unless the
/// request is at fault.
pub(crate) fn settle(crashes: &Crashes, pool: &WorkerPool, id: &HeaderValue, is_answered: bool) {
    let crashes = std::mem::take(&mut *crashes.lock());
    let is_theirs = is_answered || crashes.len() == 1;
    for Crash { member, dispatch } in crashes {
        let member = &pool.members[member];
        let worker = &*member.worker.spec().name;
        let id = RequestId(id);
        if !is_theirs {
            if let Some(held_back) = member.link.failure_log.pass() {
                warn!(
                    worker,
                    request = %id,
                    held_back,
                    "a request makes workers close its connections: it is not sent again"
                );
            }
        } else if pool.failed(member, dispatch, &ClosedOnRequest) {
            warn!(worker, request = %id, "a worker closed the connection without an answer and is ejected");
        }
    }
}
