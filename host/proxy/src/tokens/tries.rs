//! Tries to learn one prompt's tokens from workers, within one deadline.
//!
//! A worker that has not answered after the time that its pool's tokenizers usually take gets company: another worker is tried
//! beside it, and the first answer counts (a hedged request). A worker that fails is replaced by another at once. Only tries
//! that outlived their time count against a tokenizer, and one of them alone does not.

use std::future::pending;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{sleep_until, timeout};

use super::worker::{Asked, LearnError};
use crate::base::label::TokenTry;
use crate::fleet::health::AttemptToken;
use crate::fleet::pool::Member;
use crate::tokens::TokenPool;

/// Most workers that are tried for one prompt.
const MOST_TRIES: usize = 3;
/// A worker without the path is not asked again for so long, in milliseconds: it may be replaced by one with.
const ABSENT_MS: u64 = 5 * 60 * 1_000;

/// Why no worker made the tokens known.
#[derive(Debug)]
pub(super) enum Untold {
    /// There is none whose tokenizer is in use.
    NoWorker,
    /// The deadline passed.
    Timeout { tries: usize },
    /// The worker of that name failed last.
    Failed { worker: Box<str>, error: LearnError },
}

/// Asks the members in turn until one answers with tokens, one refuses the prompt itself, or the deadline passes.
pub(super) async fn first_tokens<'a>(
    pool: TokenPool<'a>,
    members: impl Iterator<Item = &'a Member>,
    asked: &'a Asked<'a>,
    deadline: Duration,
) -> Result<Vec<u32>, Untold> {
    let mut tries = Tries {
        pool,
        asked,
        patience: pool.workers.knowledge.latency.patience(deadline),
        deadline,
        made: 0,
    };
    let all = tries.race(members.take(MOST_TRIES));
    match timeout(deadline, all).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Untold::Timeout { tries: tries.made }),
    }
}

struct Tries<'a> {
    pool: TokenPool<'a>,
    asked: &'a Asked<'a>,
    /// Until a further try begins beside the last one.
    patience: Duration,
    deadline: Duration,
    made: usize,
}

impl<'a> Tries<'a> {
    async fn race(&mut self, members: impl Iterator<Item = &'a Member>) -> Result<Vec<u32>, Untold> {
        let mut members = members.peekable();
        let mut running = FuturesUnordered::new();
        let mut last = Untold::NoWorker;
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
                        last = Untold::Failed { worker, error };
                        if is_final {
                            return Err(last);
                        }
                    }
                },
                () = at(due) => {}
            }
        }
    }

    /// One try, which settles what is known of the tokenizer whether it ends or is dropped.
    fn one(
        &mut self,
        member: &'a Member,
    ) -> impl Future<Output = (&'a Member, Result<Vec<u32>, LearnError>)> + use<'a> {
        self.made += 1;
        let mut running = RunningTry {
            pool: self.pool,
            member,
            dispatch: member.link.begin_tokenizing(),
            began: Instant::now(),
            patience: self.patience,
            is_over: false,
        };
        let (asked, deadline) = (self.asked, self.deadline);
        async move {
            let outcome = asked.ask(member, deadline).await;
            running.ended(outcome.as_ref().err());
            (member, outcome)
        }
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => pending().await,
    }
}

/// A try that is under way, until dropped.
struct RunningTry<'a> {
    pool: TokenPool<'a>,
    member: &'a Member,
    dispatch: AttemptToken,
    began: Instant,
    patience: Duration,
    is_over: bool,
}

impl RunningTry<'_> {
    fn ended(&mut self, error: Option<&LearnError>) {
        self.is_over = true;
        let link = &self.member.link;
        let end = match error {
            None => {
                self.pool.workers.knowledge.latency.answered(self.began.elapsed());
                link.tokenizer.succeeded();
                TokenTry::Answered
            }
            Some(LearnError::Absent(_)) => {
                link.tokenizer.absent(link.now_ms(), ABSENT_MS);
                TokenTry::Absent
            }
            // It answers; what it refuses is the affair of this one prompt.
            Some(LearnError::Refused(status)) if !matches!(status.as_u16(), 502..=504) => {
                link.tokenizer.succeeded();
                TokenTry::Refused
            }
            Some(_) => {
                link.tokenizer.failed(self.dispatch, link.now_ms());
                TokenTry::Failed
            }
        };
        self.pool.metrics.token_tries.count(end);
    }
}

impl Drop for RunningTry<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let link = &self.member.link;
        let end = if self.began.elapsed() >= self.patience {
            link.tokenizer.unanswered(self.dispatch, link.now_ms());
            TokenTry::Unanswered
        } else {
            TokenTry::Superseded
        };
        self.pool.metrics.token_tries.count(end);
    }
}
