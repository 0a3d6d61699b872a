//! Hedged requests for one prompt's tokens to workers, within one deadline.
//!
//! If a worker has not answered after the usual time of its pool's tokenizers, a second worker is queried beside it.
//! The first response counts. A failed worker is replaced by another at once. Only attempts that exceed their time
//! count against a tokenizer, and a single one does not.

use std::future::pending;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until, timeout};

use super::tokenize_request::TokenPool;
use super::worker::{TokenQuery, TokenTryError};
use crate::base::label::TokenTry;
use crate::fleet::health::AttemptToken;
use crate::fleet::pool::Member;
use crate::fleet::worker::TokenPath;

/// Maximum of workers queried for one prompt.
const MOST_TRIES: usize = 3;
/// Time in milliseconds before a worker without the endpoint is queried again: another version may have replaced it.
const ABSENT_MS: u64 = 5 * 60 * 1_000;

/// Reason why no worker returned the tokens.
#[derive(Debug)]
pub(super) enum TriesError {
    /// No worker has a tokenizer in use.
    NoWorker,
    /// The deadline passed.
    Timeout { tries: usize },
    /// The last failure, with the worker's name.
    Failed { worker: Box<str>, error: TokenTryError },
}

/// Queries the members in turn. Ends when one returns tokens, one refuses the prompt itself, or the deadline passes.
pub(super) async fn first_tokens<'a>(
    pool: TokenPool<'a>,
    members: impl Iterator<Item = &'a Member>,
    query: &'a TokenQuery<'a>,
    deadline: Duration,
) -> Result<Vec<u32>, TriesError> {
    let mut tries = Tries {
        pool,
        query,
        patience: pool.workers.knowledge.latency.patience(deadline),
        deadline,
        made: 0,
    };
    let all = tries.race(members.take(MOST_TRIES));
    match timeout(deadline, all).await {
        Ok(outcome) => outcome,
        Err(_) => Err(TriesError::Timeout { tries: tries.made }),
    }
}

struct Tries<'a> {
    pool: TokenPool<'a>,
    query: &'a TokenQuery<'a>,
    /// Delay until the next hedged attempt.
    patience: Duration,
    deadline: Duration,
    made: usize,
}

impl<'a> Tries<'a> {
    async fn race(&mut self, members: impl Iterator<Item = &'a Member>) -> Result<Vec<u32>, TriesError> {
        let mut members = members.peekable();
        let mut running = FuturesUnordered::new();
        let mut last = TriesError::NoWorker;
        loop {
            let mut due = None;
            if let Some(member) = members.next() {
                running.push(self.one(member));
                let is_last = members.peek().is_none();
                due = (!is_last).then(|| Instant::now() + self.patience);
            } else if running.is_empty() {
                return Err(last);
            }
            tokio::select! {
                Some((member, outcome)) = running.next() => match outcome {
                    Ok(tokens) => return Ok(tokens),
                    Err(error) => {
                        let is_final = error.is_of_the_prompt();
                        let worker = member.worker.spec().name.clone();
                        last = TriesError::Failed { worker, error };
                        if is_final {
                            return Err(last);
                        }
                    }
                },
                () = at(due) => {}
            }
        }
    }

    /// Makes one attempt. Updates the tokenizer's state, also when dropped.
    fn one(
        &mut self,
        member: &'a Member,
    ) -> impl Future<Output = (&'a Member, Result<Vec<u32>, TokenTryError>)> + use<'a> {
        self.made += 1;
        let mut running = RunningTry {
            pool: self.pool,
            member,
            path: self.query.path,
            dispatch: member.link.begin_tokenizing(self.query.path),
            began: Instant::now(),
            patience: self.patience,
            is_over: false,
        };
        let (query, deadline) = (self.query, self.deadline);
        async move {
            let outcome = query.send(member, deadline).await;
            running.ended(outcome.as_ref().err());
            (member, outcome)
        }
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

/// Attempt in progress, until dropped.
struct RunningTry<'a> {
    pool: TokenPool<'a>,
    member: &'a Member,
    path: TokenPath,
    dispatch: AttemptToken,
    began: Instant,
    patience: Duration,
    is_over: bool,
}

impl RunningTry<'_> {
    fn ended(&mut self, error: Option<&TokenTryError>) {
        self.is_over = true;
        let link = &self.member.link;
        let tokenizer = link.tokenizer(self.path);
        let end = match error {
            None => {
                self.pool.workers.knowledge.latency.answered(self.began.elapsed());
                tokenizer.succeeded();
                TokenTry::Answered
            }
            Some(TokenTryError::Absent(_)) => {
                tokenizer.absent(link.now_ms(), ABSENT_MS);
                TokenTry::Absent
            }
            // The worker responds; its refusal concerns this prompt only.
            Some(TokenTryError::Refused(status)) if !matches!(status.as_u16(), 502..=504) => {
                tokenizer.succeeded();
                TokenTry::Refused
            }
            Some(_) => {
                tokenizer.failed(self.dispatch, link.now_ms());
                TokenTry::Failed
            }
        };
        self.pool.metrics.tries.count(end);
    }
}

impl Drop for RunningTry<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let link = &self.member.link;
        let end = if self.began.elapsed() >= self.patience {
            link.tokenizer(self.path).unanswered(self.dispatch, link.now_ms());
            TokenTry::Unanswered
        } else {
            TokenTry::Superseded
        };
        self.pool.metrics.tries.count(end);
    }
}
