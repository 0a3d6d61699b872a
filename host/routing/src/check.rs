//! A verdict becomes a decision here, and only here: a [`Route`] can be made by no other code, so whoever
//! holds one knows that its row exists.

use thiserror::Error;

use crate::decision::{Hold, Rejection, Verdict};

/// Bounds of a hold's `ask_again_ms`.
const ASK_AGAIN_MS: (u32, u32) = (1, 10_000);
/// Longest reason shown to a client, in bytes.
const MAX_REASON: usize = 256;
/// What a rejection with a status that is no HTTP error becomes.
const DEFAULT_STATUS: u16 = 503;

/// A checked answer that the router may act on.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Send the request to a candidate that exists.
    Route(Route),
    /// Hold it.
    Queue(Hold),
    /// Refuse it.
    Reject(Rejection),
    /// The policy has no opinion.
    Pass,
}

/// A checked choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Route {
    row: usize,
    score: f64,
}

impl Route {
    /// The candidate's row, less than the number of candidates that were offered.
    #[must_use]
    pub fn row(&self) -> usize {
        self.row
    }

    /// The policy's figure of merit; NaN when it has none.
    #[must_use]
    pub fn score(&self) -> f64 {
        self.score
    }
}

/// Why a verdict makes no sense for the candidates it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidVerdict {
    /// A row that was not offered.
    #[error("chose row {row} of {candidates} candidates")]
    RowOutOfRange {
        /// The row it named.
        row: u32,
        /// How many there were.
        candidates: usize,
    },
    /// A separate prefill worker in a pool that is not disaggregated.
    #[error("named a separate prefill worker in a pool that is not disaggregated")]
    PrefillNotOffered,
    /// A hold without a usable order.
    #[error("asked to be queued with an order that is not a number")]
    OrderNotANumber,
}

/// Checks a verdict against the number of candidates it was given.
///
/// # Errors
/// [`InvalidVerdict`] where acting on it would be wrong; small slips (a status that is no error, a reason
/// that is too long, a delay out of bounds) are mended instead.
pub fn check(verdict: Verdict, candidates: usize) -> Result<Decision, InvalidVerdict> {
    match verdict {
        Verdict::Route(choice) => {
            let row = choice.row as usize;
            if row >= candidates {
                return Err(InvalidVerdict::RowOutOfRange {
                    row: choice.row,
                    candidates,
                });
            }
            if choice.prefill.is_some() {
                return Err(InvalidVerdict::PrefillNotOffered);
            }
            Ok(Decision::Route(Route {
                row,
                score: choice.score,
            }))
        }
        Verdict::Queue(hold) if hold.order.is_nan() => Err(InvalidVerdict::OrderNotANumber),
        Verdict::Queue(hold) => Ok(Decision::Queue(Hold {
            ask_again_ms: hold.ask_again_ms.clamp(ASK_AGAIN_MS.0, ASK_AGAIN_MS.1),
            ..hold
        })),
        Verdict::Reject(rejection) => Ok(Decision::Reject(mend(rejection))),
        Verdict::Pass => Ok(Decision::Pass),
    }
}

fn mend(mut rejection: Rejection) -> Rejection {
    if !(400..600).contains(&rejection.status) {
        rejection.status = DEFAULT_STATUS;
    }
    if rejection.reason.len() > MAX_REASON {
        let cut = rejection.reason.floor_char_boundary(MAX_REASON);
        rejection.reason.truncate(cut);
    }
    rejection
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Choice;

    fn route(row: u32) -> Verdict {
        Verdict::Route(Choice {
            row,
            prefill: None,
            score: 1.0,
        })
    }

    #[test]
    fn the_last_row_is_a_route() {
        assert_eq!(
            check(route(3), 4),
            Ok(Decision::Route(Route { row: 3, score: 1.0 }))
        );
    }

    #[test]
    fn a_row_past_the_last_is_refused() {
        assert_eq!(
            check(route(4), 4),
            Err(InvalidVerdict::RowOutOfRange {
                row: 4,
                candidates: 4
            })
        );
        assert_eq!(
            check(route(u32::MAX), 4),
            Err(InvalidVerdict::RowOutOfRange {
                row: u32::MAX,
                candidates: 4
            })
        );
    }

    #[test]
    fn a_prefill_worker_is_refused_where_none_was_offered() {
        let verdict = Verdict::Route(Choice {
            row: 0,
            prefill: Some(1),
            score: 0.0,
        });
        assert_eq!(check(verdict, 2), Err(InvalidVerdict::PrefillNotOffered));
    }

    #[test]
    fn a_hold_is_bounded_and_must_have_an_order() {
        let hold = |order, ask_again_ms| Verdict::Queue(Hold { order, ask_again_ms });
        assert_eq!(
            check(hold(1.0, 0), 1),
            Ok(Decision::Queue(Hold {
                order: 1.0,
                ask_again_ms: 1
            }))
        );
        assert_eq!(
            check(hold(f64::INFINITY, u32::MAX), 1),
            Ok(Decision::Queue(Hold {
                order: f64::INFINITY,
                ask_again_ms: 10_000
            }))
        );
        assert_eq!(check(hold(f64::NAN, 5), 1), Err(InvalidVerdict::OrderNotANumber));
    }

    #[test]
    fn a_rejection_is_always_an_error_with_a_short_reason() {
        let rejection = Rejection {
            status: 200,
            retry_after_ms: 0,
            reason: "ä".repeat(200),
        };
        let Ok(Decision::Reject(mended)) = check(Verdict::Reject(rejection), 1) else {
            panic!("not a rejection")
        };
        assert_eq!(mended.status, 503);
        assert_eq!(mended.reason.len(), 256);
    }
}
