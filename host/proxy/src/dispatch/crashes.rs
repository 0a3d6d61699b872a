//! Workers that closed a fresh connection on a request that they had, without a word: is it they that failed, or is it the request
//! that makes them?
//!
//! Where another answers it, they failed. Where that one closes as well, the request is at fault as far as anybody can tell, and
//! must not be shown to the rest of the pool; nor must its clients have the pool rest by sending it again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use tracing::warn;

use crate::base::request_id::RequestId;
use crate::fleet::health::AttemptToken;
use crate::request::context::RequestContext;

/// Those of one request.
#[derive(Debug, Default)]
pub(crate) struct Crashes(Mutex<Vec<Crash>>);

#[derive(Debug, Clone, Copy)]
struct Crash {
    /// Index into the pool's members.
    member: usize,
    dispatch: AttemptToken,
}

/// A worker closed the connection on a request that is not to blame.
#[derive(Debug, Error)]
#[error("get an answer: the worker closed the connection before its first byte")]
struct ClosedOnRequest;

impl Crashes {
    /// A worker closed the connection.
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

/// What is placed of a request is settled: blames those that closed the connection, unless it is the request.
pub(crate) fn settle(request: &RequestContext, is_answered: bool) {
    let crashes = std::mem::take(&mut *request.crashes.lock());
    let pool = request.pool();
    let is_theirs = is_answered || crashes.len() == 1;
    for Crash { member, dispatch } in crashes {
        let member = &pool.workers.members[member];
        let worker = &*member.worker.spec().name;
        let id = RequestId(&request.id);
        if !is_theirs {
            if let Some(held_back) = member.link.failure_log.pass() {
                warn!(
                    worker,
                    request = %id,
                    held_back,
                    "a request makes workers close its connections: it is not sent again"
                );
            }
        } else if pool.workers.failed(member, dispatch, &ClosedOnRequest) {
            warn!(worker, request = %id, "a worker closed the connection without an answer and is ejected");
        }
    }
}
