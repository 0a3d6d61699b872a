//! Label values of the request path's metrics.

use worker_client::SendError;

/// What became of a request. Each is counted exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The worker's answer was relayed to its end, whatever its status.
    Complete,
    /// The client went away first.
    ClientLeft,
    /// The worker broke off, or answered no HTTP.
    UpstreamError,
    /// The router shut down in the middle of a stream.
    ShutDown,
    /// The worker fell silent in the middle of its answer.
    IdleTimeout,
    /// The worker did not begin to answer in time.
    FirstByteTimeout,
    /// No worker could be reached.
    Unreachable,
    /// The policy refused it.
    Rejected,
    /// It found the queue full.
    QueueFull,
    /// It waited in the queue for too long.
    QueueTimeout,
    /// The request was at fault.
    Invalid,
    /// It came with no client's key.
    Unauthorized,
    /// Its client has used what it may.
    Limited,
    /// Its whole time was up.
    RequestTimeout,
    /// It made room in the queue for a more important one.
    Shed,
    /// It would have been answered too slowly.
    TooSlow,
    /// There was no room for its body.
    BodiesFull,
}

/// Every outcome in the order of its discriminant, with its label.
pub(crate) const OUTCOMES: [(Outcome, &str); 17] = [
    (Outcome::Complete, "complete"),
    (Outcome::ClientLeft, "client-left"),
    (Outcome::UpstreamError, "upstream-error"),
    (Outcome::ShutDown, "shut-down"),
    (Outcome::IdleTimeout, "idle-timeout"),
    (Outcome::FirstByteTimeout, "first-byte-timeout"),
    (Outcome::Unreachable, "unreachable"),
    (Outcome::Rejected, "rejected"),
    (Outcome::QueueFull, "queue-full"),
    (Outcome::QueueTimeout, "queue-timeout"),
    (Outcome::Invalid, "invalid"),
    (Outcome::Unauthorized, "unauthorized"),
    (Outcome::Limited, "limited"),
    (Outcome::RequestTimeout, "request-timeout"),
    (Outcome::Shed, "shed"),
    (Outcome::TooSlow, "rejected-early"),
    (Outcome::BodiesFull, "bodies-full"),
];

/// How an attempt on a worker failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// No connection.
    Connect,
    /// The connection ended before any byte of an answer.
    Closed,
    /// No answer in time.
    FirstByteTimeout,
    /// What came was not HTTP.
    BadAnswer,
    /// The answer broke off.
    BrokenOff,
    /// The answer stopped flowing.
    IdleTimeout,
    /// An answer with a status of 500 or more (relayed as it is).
    ServerError,
}

impl From<&SendError> for FailureKind {
    fn from(error: &SendError) -> Self {
        match error {
            SendError::Connect(_) => Self::Connect,
            SendError::Closed(_) | SendError::KeptClosed(_) => Self::Closed,
            SendError::FirstByteTimeout(_) => Self::FirstByteTimeout,
            SendError::BadAnswer(_) | SendError::UnexpectedUpgrade | SendError::TwoFramings => {
                Self::BadAnswer
            }
        }
    }
}

/// Every kind in the order of its discriminant, with its label.
pub(crate) const FAILURES: [(FailureKind, &str); 7] = [
    (FailureKind::Connect, "connect"),
    (FailureKind::Closed, "closed"),
    (FailureKind::FirstByteTimeout, "first-byte-timeout"),
    (FailureKind::BadAnswer, "bad-answer"),
    (FailureKind::BrokenOff, "broken-off"),
    (FailureKind::IdleTimeout, "idle-timeout"),
    (FailureKind::ServerError, "server-error"),
];

/// How a prompt's tokens came to be known, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokensKind {
    /// The client sent token ids.
    Given,
    /// The model's own tokenizer, in the router.
    Local,
    /// A worker's `/tokenize` told.
    Worker,
    /// A worker's path that renders told.
    Render,
    /// Its text stands for them.
    Text,
    /// They were not there in time.
    Timeout,
    /// It is longer than what is tokenised in the router.
    TooLong,
    /// Making them costs more than a prompt may.
    TooCostly,
    /// Too many waited for a thread.
    QueueFull,
    /// A worker could not be asked, or did not answer with tokens; or the tokenizer broke.
    Failed,
    /// There is no way to ask for this kind of prompt.
    Unsupported,
    /// The pool does not tokenise.
    Off,
}

/// Every kind in the order of its discriminant, with its label.
pub(crate) const TOKENS: [(TokensKind, &str); 12] = [
    (TokensKind::Given, "given"),
    (TokensKind::Local, "local"),
    (TokensKind::Worker, "worker"),
    (TokensKind::Render, "render"),
    (TokensKind::Text, "text"),
    (TokensKind::Timeout, "timeout"),
    (TokensKind::TooLong, "too-long"),
    (TokensKind::TooCostly, "too-costly"),
    (TokensKind::QueueFull, "queue-full"),
    (TokensKind::Failed, "failed"),
    (TokensKind::Unsupported, "unsupported"),
    (TokensKind::Off, "off"),
];

/// How one try to learn a prompt's tokens from a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenTry {
    /// With tokens.
    Answered,
    /// The worker refused this prompt.
    Refused,
    /// The worker has no such path.
    Absent,
    /// The worker failed to answer, or not with tokens.
    Failed,
    /// It was given up after its time without an answer.
    Unanswered,
    /// It was given up within its time, since another try answered or the client left.
    Superseded,
}

/// Every end in the order of its discriminant, with its label.
pub(crate) const TOKEN_TRIES: [(TokenTry, &str); 6] = [
    (TokenTry::Answered, "answered"),
    (TokenTry::Refused, "refused"),
    (TokenTry::Absent, "absent"),
    (TokenTry::Failed, "failed"),
    (TokenTry::Unanswered, "unanswered"),
    (TokenTry::Superseded, "superseded"),
];

/// What a policy answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerdictKind {
    Route,
    Queue,
    Reject,
    Pass,
}

/// Every kind in the order of its discriminant, with its label.
pub(crate) const VERDICTS: [(VerdictKind, &str); 4] = [
    (VerdictKind::Route, "route"),
    (VerdictKind::Queue, "queue"),
    (VerdictKind::Reject, "reject"),
    (VerdictKind::Pass, "pass"),
];

/// Cause of a worker's ejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EjectionCause {
    /// Consecutive attempts without a response.
    Failures,
    /// Consecutive responses with a status of 500 or more.
    ServerErrors,
    /// Failure rate.
    Share,
    /// Failed probes.
    Probe,
}

/// Ejection causes in the order of their discriminants, with their labels.
pub(crate) const EJECTIONS: [(EjectionCause, &str); 4] = [
    (EjectionCause::Failures, "failures"),
    (EjectionCause::ServerErrors, "server-errors"),
    (EjectionCause::Share, "failure-share"),
    (EjectionCause::Probe, "probe"),
];

/// What came of a health probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// A good answer.
    Passed,
    /// The worker has no such page, or shows it to others: it is there.
    NoPage,
    /// It has no time for such questions (429), which tells nothing.
    Busy,
    /// A status of 500 or more.
    Refused,
    /// No answer.
    Unreachable,
    /// None in time.
    Timeout,
}

/// Every result in the order of its discriminant, with its label.
pub(crate) const PROBES: [(ProbeResult, &str); 6] = [
    (ProbeResult::Passed, "passed"),
    (ProbeResult::NoPage, "no-page"),
    (ProbeResult::Busy, "busy"),
    (ProbeResult::Refused, "refused"),
    (ProbeResult::Unreachable, "unreachable"),
    (ProbeResult::Timeout, "timeout"),
];

/// Result of a scrape of a worker's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScrapeResult {
    /// The page has load values.
    Reported,
    /// The page has no load values.
    Nothing,
    /// It has no page.
    NoPage,
    /// It did not answer in time, or with an error.
    Failed,
}

/// Every result in the order of its discriminant, with its label.
pub(crate) const SCRAPES: [(ScrapeResult, &str); 4] = [
    (ScrapeResult::Reported, "reported"),
    (ScrapeResult::Nothing, "nothing"),
    (ScrapeResult::NoPage, "no-page"),
    (ScrapeResult::Failed, "failed"),
];

/// How a further try of a request was paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryKind {
    /// It cost no worker anything.
    Free,
    /// From the budget.
    Paid,
    /// Not at all: it was not made.
    OverBudget,
}

/// Every kind in the order of its discriminant, with its label.
pub(crate) const RETRIES: [(RetryKind, &str); 3] = [
    (RetryKind::Free, "free"),
    (RetryKind::Paid, "paid"),
    (RetryKind::OverBudget, "over-budget"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_stands_at_its_discriminant() {
        assert!(
            OUTCOMES
                .iter()
                .enumerate()
                .all(|(at, (outcome, _))| *outcome as usize == at)
        );
        assert!(
            FAILURES
                .iter()
                .enumerate()
                .all(|(at, (kind, _))| *kind as usize == at)
        );
        assert!(
            TOKENS
                .iter()
                .enumerate()
                .all(|(at, (kind, _))| *kind as usize == at)
        );
        assert!(
            TOKEN_TRIES
                .iter()
                .enumerate()
                .all(|(at, (end, _))| *end as usize == at)
        );
        assert!(
            VERDICTS
                .iter()
                .enumerate()
                .all(|(at, (kind, _))| *kind as usize == at)
        );
        assert!(
            EJECTIONS
                .iter()
                .enumerate()
                .all(|(at, (cause, _))| *cause as usize == at)
        );
        assert!(
            PROBES
                .iter()
                .enumerate()
                .all(|(at, (result, _))| *result as usize == at)
        );
        assert!(
            SCRAPES
                .iter()
                .enumerate()
                .all(|(at, (result, _))| *result as usize == at)
        );
        assert!(
            RETRIES
                .iter()
                .enumerate()
                .all(|(at, (kind, _))| *kind as usize == at)
        );
    }
}
