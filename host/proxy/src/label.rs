//! The closed sets of labels that metrics of the request path are told apart by.

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
}

/// Every outcome in the order of its discriminant, with its label.
pub(crate) const OUTCOMES: [(Outcome, &str); 11] = [
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
    /// A worker's `/tokenize` told.
    Worker,
    /// It did not tell in time.
    Timeout,
    /// It could not be asked, or did not answer with tokens.
    Failed,
    /// There is no way to ask for this kind of prompt.
    Unsupported,
    /// The pool does not tokenise.
    Off,
}

/// Every kind in the order of its discriminant, with its label.
pub(crate) const TOKENS: [(TokensKind, &str); 6] = [
    (TokensKind::Given, "given"),
    (TokensKind::Worker, "worker"),
    (TokensKind::Timeout, "timeout"),
    (TokensKind::Failed, "failed"),
    (TokensKind::Unsupported, "unsupported"),
    (TokensKind::Off, "off"),
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
            VERDICTS
                .iter()
                .enumerate()
                .all(|(at, (kind, _))| *kind as usize == at)
        );
    }
}
