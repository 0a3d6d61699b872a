//! Account of every request's end. Failures are classified as avoidable or not.
//!
//! An error counts as unrecoverable, and injected, only if
//! - an answer had begun (the first token of a stream, the head of a whole one), and the worker that gave it broke its
//!   answers off at some time while the request ran: a cut, a restart, an outage; or
//! - no worker could serve it: while the request ran, each decode worker at some time refused or closed connections or
//!   answered 503; or, with SGLang, each prefill worker did, or broke its answers off, or had no bootstrap server: its
//!   decode workers serve nothing without one.
//!
//! Everything else is a violation.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use harness::{End, Seen};
use mock_engine::PdDialect;

use crate::pool::{Pool, Trouble};

/// Most violations that are reported in full.
const MAX_REPORTED: usize = 20;

/// A request.
pub(crate) struct SentRequest<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) stream: bool,
    /// Tokens to be answered.
    pub(crate) tokens: usize,
    /// Answer that begins with the right one.
    pub(crate) answer: &'a str,
    pub(crate) since: Instant,
}

/// Outcome of a request.
pub(crate) enum Outcome {
    Answer(Seen),
    /// The connection ended before an answer began, or what came was none.
    NoAnswer,
    /// The client left.
    Left,
    /// The request did not end in time.
    Hung,
}

/// All requests.
#[derive(Debug, Default)]
pub(crate) struct Account {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    requests: u64,
    complete: u64,
    left: u64,
    hung: u64,
    /// Unavoidable errors, by the client's view.
    unrecoverable: BTreeMap<String, u64>,
    /// Other errors, by the client's view.
    violations: BTreeMap<String, u64>,
    reported: Vec<String>,
    slowest: Duration,
}

impl Account {
    pub(crate) fn enter(&self, sent: &SentRequest<'_>, outcome: Outcome) {
        let mut books = self.books();
        books.requests += 1;
        let seen = match outcome {
            Outcome::Left => {
                books.left += 1;
                return;
            }
            Outcome::Hung => {
                books.hung += 1;
                return;
            }
            Outcome::Answer(seen) => Some(seen),
            Outcome::NoAnswer => None,
        };
        books.slowest = books.slowest.max(sent.since.elapsed());
        if seen.as_ref().is_some_and(|seen| sent.is_right(seen)) {
            books.complete += 1;
            return;
        }
        let label = sent.label(seen.as_ref());
        if sent.was_unrecoverable(seen.as_ref()) {
            *books.unrecoverable.entry(label).or_default() += 1;
            return;
        }
        if books.reported.len() < MAX_REPORTED {
            let (elapsed, troubles) = (sent.since.elapsed(), sent.pool.troubles(sent.since));
            books.reported.push(format!(
                "{label} after {elapsed:?}; meanwhile:{troubles}; {seen:?}"
            ));
        }
        *books.violations.entry(label).or_default() += 1;
    }

    /// Returns `true` if nothing hung, every error is explained, and there was an answer.
    pub(crate) fn is_clean(&self) -> bool {
        let books = self.books();
        books.hung == 0 && books.violations.is_empty() && books.complete > 0
    }

    pub(crate) fn in_short(&self) -> String {
        let books = self.books();
        let [unrecoverable, violations] =
            [&books.unrecoverable, &books.violations].map(|errors| errors.values().sum::<u64>());
        format!(
            "{} requests, {} complete, {} left, {unrecoverable} unrecoverable, {} hung, {violations} violations",
            books.requests, books.complete, books.left, books.hung
        )
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SentRequest<'_> {
    fn is_right(&self, seen: &Seen) -> bool {
        seen.status.is_success()
            && seen.end == End::Complete
            && seen.text.split_whitespace().count() == self.tokens
            && self.answer.starts_with(&seen.text)
    }

    fn label(&self, seen: Option<&Seen>) -> String {
        let kind = if self.stream { "stream" } else { "whole" };
        let what = match seen {
            None => "no answer".to_owned(),
            Some(seen) => match &seen.end {
                End::Complete => "a wrong answer".to_owned(),
                End::Refused(code) => format!("{} {code}", seen.status.as_u16()),
                End::ErrorEvent(code) => format!("broken off with an error event, {code}"),
                End::Torn => "broken off without a word".to_owned(),
            },
        };
        format!("{} {kind}: {what}", self.pool.name)
    }

    fn was_unrecoverable(&self, seen: Option<&Seen>) -> bool {
        let breaks = |trouble| matches!(trouble, Trouble::Cut | Trouble::Restart | Trouble::Outage);
        let broke = |worker: &str| self.pool.decode_was(worker, self.since, breaks);
        let answered_by = |seen: &Seen| seen.header("x-conductor-worker").to_owned();
        match seen {
            // The head of a whole answer may go down with the connection that its body ends.
            None => !self.stream && broke(""),
            Some(seen) => match &seen.end {
                End::Complete => false,
                // Nothing that is done to engines makes one slower than the router's timeouts.
                End::Refused(code) => code != "worker_timeout" && self.is_unavoidable(),
                End::ErrorEvent(code) => {
                    code == "worker_broke_off" && !seen.text.is_empty() && broke(&answered_by(seen))
                }
                End::Torn => !self.stream && broke(&answered_by(seen)),
            },
        }
    }

    fn is_unavoidable(&self) -> bool {
        let is_out = |trouble| matches!(trouble, Trouble::Restart | Trouble::Outage | Trouble::Busy);
        let is_no_help = |trouble| is_out(trouble) || matches!(trouble, Trouble::Bootstrap | Trouble::Cut);
        self.pool.each_was(false, self.since, is_out)
            || self.pool.dialect == PdDialect::Sglang && self.pool.each_was(true, self.since, is_no_help)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let books = self.books();
        writeln!(f, "requests: {}", books.requests)?;
        writeln!(f, "  complete, and right: {}", books.complete)?;
        writeln!(f, "  the client left: {}", books.left)?;
        writeln!(f, "  hung: {}", books.hung)?;
        for (what, errors) in [
            ("errors, injected and unrecoverable", &books.unrecoverable),
            ("errors, not explained", &books.violations),
        ] {
            writeln!(f, "  {what}: {}", errors.values().sum::<u64>())?;
            for (label, count) in errors {
                writeln!(f, "    {count} {label}")?;
            }
        }
        for reported in &books.reported {
            writeln!(f, "  ! {reported}")?;
        }
        write!(f, "slowest answer: {:.1?}", books.slowest)
    }
}
