//! Label values of the request path's metrics.

use routing::{Decision, Verdict};
use worker_client::SendError;

/// Outcome of a request. Each request is counted exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The worker's response was relayed completely, whatever its status.
    Complete,
    /// The client closed the connection first.
    ClientLeft,
    /// The worker broke off, or its response was not HTTP.
    UpstreamError,
    /// The router shut down in the middle of a stream.
    ShutDown,
    /// The worker sent nothing for too long in the middle of its response.
    IdleTimeout,
    /// The worker's response did not begin in time.
    FirstByteTimeout,
    /// No worker was reachable.
    Unreachable,
    /// The policy rejected the request.
    Rejected,
    /// The queue was full.
    QueueFull,
    /// The request waited in the queue for too long.
    QueueTimeout,
    /// The request was invalid.
    Invalid,
    /// The request had no client's key.
    Unauthorized,
    /// The client exceeded one of its limits.
    Limited,
    /// The timeout of the whole request expired.
    RequestTimeout,
    /// Shed from the queue for a more important request.
    Shed,
    /// Rejected early: the predicted latency missed its target.
    TooSlow,
    /// The memory for bodies was full.
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

/// Returns the labels of all outcomes.
#[must_use]
pub fn outcome_labels() -> [&'static str; OUTCOMES.len()] {
    OUTCOMES.map(|(_, label)| label)
}

/// Kind of a failed attempt on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// No connection was made.
    Connect,
    /// The connection closed before the first byte of a response.
    Closed,
    /// No response came in time.
    FirstByteTimeout,
    /// The response was not HTTP.
    BadAnswer,
    /// The response broke off.
    BrokenOff,
    /// The response stalled.
    IdleTimeout,
    /// Status of 500 or more (the response is relayed unchanged).
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

/// Source of a prompt's tokens, or the reason for their absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokensKind {
    /// Token ids sent by the client.
    Given,
    /// The model's own tokenizer, in the router.
    Local,
    /// A worker's `/tokenize`.
    Worker,
    /// A worker's render endpoint.
    Render,
    /// Text blocks in place of tokens.
    Text,
    /// The tokens did not come in time.
    Timeout,
    /// The prompt exceeds the length limit of tokenization in the router.
    TooLong,
    /// Tokenization costs more than a prompt may.
    TooCostly,
    /// The queue for a thread was full.
    QueueFull,
    /// A worker was not reachable or its response had no tokens, or the tokenizer failed.
    Failed,
    /// No source supports this kind of prompt.
    Unsupported,
    /// The pool does not tokenize.
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

/// Result of one attempt to get a prompt's tokens from a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenTry {
    /// The response had tokens.
    Answered,
    /// The worker refused this prompt.
    Refused,
    /// The worker has no such endpoint.
    Absent,
    /// The worker did not respond, or its response had no tokens.
    Failed,
    /// Abandoned after its time without a response.
    Unanswered,
    /// Abandoned within its time, because another attempt succeeded or the client left.
    Superseded,
}

/// Every result in the order of its discriminant, with its label.
pub(crate) const TOKEN_TRIES: [(TokenTry, &str); 6] = [
    (TokenTry::Answered, "answered"),
    (TokenTry::Refused, "refused"),
    (TokenTry::Absent, "absent"),
    (TokenTry::Failed, "failed"),
    (TokenTry::Unanswered, "unanswered"),
    (TokenTry::Superseded, "superseded"),
];

/// Kind of a policy's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerdictKind {
    Route,
    Queue,
    Reject,
    Pass,
}

impl VerdictKind {
    pub(crate) fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Route(_) => Self::Route,
            Verdict::Queue(_) => Self::Queue,
            Verdict::Reject(_) => Self::Reject,
            Verdict::Pass => Self::Pass,
        }
    }

    pub(crate) fn of_decision(decision: &Decision) -> Self {
        match decision {
            Decision::Route(_) => Self::Route,
            Decision::Queue(_) => Self::Queue,
            Decision::Reject(_) => Self::Reject,
            Decision::Pass => Self::Pass,
        }
    }
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

/// Result of a health probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// A successful response.
    Passed,
    /// The worker has no such page or denies access: it is up.
    NoPage,
    /// The worker is too busy for probes (429). Says nothing about its health.
    Busy,
    /// A status of 500 or more.
    Refused,
    /// No response.
    Unreachable,
    /// No response in time.
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
    /// The worker has no such page.
    NoPage,
    /// The worker did not respond in time, or returned an error.
    Failed,
}

/// Every result in the order of its discriminant, with its label.
pub(crate) const SCRAPES: [(ScrapeResult, &str); 4] = [
    (ScrapeResult::Reported, "reported"),
    (ScrapeResult::Nothing, "nothing"),
    (ScrapeResult::NoPage, "no-page"),
    (ScrapeResult::Failed, "failed"),
];

/// Cost of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryKind {
    /// Free: the failed attempt cost no worker anything.
    Free,
    /// Paid from the retry budget.
    Paid,
    /// Not made: the budget was used up.
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
