//! Check of verdicts against what was offered. A [`Route`] is made here only, so that its row exists.

use thiserror::Error;

use crate::decision::{Choice, Hold, Rejection, Verdict};
use crate::worker::Role;

/// Bounds of a hold's `ask_again_ms`.
const ASK_AGAIN_MS: (u32, u32) = (1, 10_000);
/// Longest reason shown to a client, in bytes.
const MAX_REASON: usize = 256;
/// Status of a rejection whose own is no HTTP error.
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

/// The candidates of a call, against which its verdict is checked.
#[derive(Debug, Clone, Copy)]
pub enum Offer<'a> {
    /// Number of candidates for one part, or the whole, of a request.
    One {
        /// Their number.
        candidates: usize,
    },
    /// Workers of a disaggregated pool, for both legs at once.
    Pair {
        /// Role of each candidate, row by row.
        roles: &'a [Role],
        /// Set if a decode worker may do the whole of the request.
        alone: bool,
    },
}

/// A checked choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Route {
    row: usize,
    prefill: Option<usize>,
    score: f64,
}

impl Route {
    /// Returns the candidate's row, less than the number of candidates that were offered.
    #[must_use]
    pub fn row(&self) -> usize {
        self.row
    }

    /// Returns the row of a separate prefill worker: one whose role is that, where the other's is decode.
    #[must_use]
    pub fn prefill(&self) -> Option<usize> {
        self.prefill
    }

    /// Returns the policy's figure of merit; NaN when it has none.
    #[must_use]
    pub fn score(&self) -> f64 {
        self.score
    }
}

/// The reason why a verdict makes no sense for its candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidVerdict {
    /// A row that was not offered.
    #[error("chose row {row} of {candidates} candidates")]
    RowOutOfRange {
        /// The row it named.
        row: u32,
        /// The number of candidates.
        candidates: usize,
    },
    /// A separate prefill worker where none was offered.
    #[error("named a separate prefill worker where one worker was to be chosen")]
    PrefillNotOffered,
    /// A prefill worker of another role.
    #[error("chose row {row} to prefill, whose role is {}", role.as_str())]
    NotAPrefillWorker {
        /// The row it named.
        row: u32,
        /// The role of that worker.
        role: Role,
    },
    /// A worker that cannot answer the client: it does not decode, or not with a prefill worker beside it.
    #[error("chose row {row} to answer the client, whose role is {}", role.as_str())]
    CannotAnswer {
        /// The row it named.
        row: u32,
        /// The role of that worker.
        role: Role,
    },
    /// Decode worker for the whole of a request, where that is not allowed.
    #[error("chose the decode worker of row {row} without a prefill worker")]
    NeedsPrefill {
        /// The row it named.
        row: u32,
    },
    /// A hold without a usable order.
    #[error("returned a hold with an order that is not a number")]
    OrderNotANumber,
}

/// Checks a verdict against what it was offered.
///
/// # Errors
/// [`InvalidVerdict`] where acting on it would be wrong; small slips (a status that is no error, a reason
/// that is too long, a delay out of bounds) are corrected instead.
pub fn check(verdict: Verdict, offer: Offer<'_>) -> Result<Decision, InvalidVerdict> {
    match verdict {
        Verdict::Route(choice) => check_choice(choice, offer).map(Decision::Route),
        Verdict::Queue(hold) if hold.order.is_nan() => Err(InvalidVerdict::OrderNotANumber),
        Verdict::Queue(hold) => {
            hold.waits_for
                .map(|waits| in_range(waits.row, offer))
                .transpose()?;
            Ok(Decision::Queue(Hold {
                ask_again_ms: hold.ask_again_ms.clamp(ASK_AGAIN_MS.0, ASK_AGAIN_MS.1),
                ..hold
            }))
        }
        Verdict::Reject(rejection) => Ok(Decision::Reject(corrected(rejection))),
        Verdict::Pass => Ok(Decision::Pass),
    }
}

fn check_choice(choice: Choice, offer: Offer<'_>) -> Result<Route, InvalidVerdict> {
    let row = in_range(choice.row, offer)?;
    let prefill = choice.prefill.map(|row| in_range(row, offer)).transpose()?;
    match offer {
        Offer::One { .. } if prefill.is_some() => return Err(InvalidVerdict::PrefillNotOffered),
        Offer::One { .. } => {}
        Offer::Pair { roles, alone } => check_roles(choice, roles, alone)?,
    }
    Ok(Route {
        row,
        prefill,
        score: choice.score,
    })
}

/// Returns the row, where it was offered.
fn in_range(row: u32, offer: Offer<'_>) -> Result<usize, InvalidVerdict> {
    let candidates = match offer {
        Offer::One { candidates } => candidates,
        Offer::Pair { roles, .. } => roles.len(),
    };
    let index = row as usize;
    (index < candidates)
        .then_some(index)
        .ok_or(InvalidVerdict::RowOutOfRange { row, candidates })
}

/// Checks the roles of a choice whose rows are in range.
fn check_roles(choice: Choice, roles: &[Role], alone: bool) -> Result<(), InvalidVerdict> {
    let role = |row: u32| roles[row as usize];
    match (role(choice.row), choice.prefill) {
        (Role::Mixed, None) => Ok(()),
        (Role::Decode, None) if alone => Ok(()),
        (Role::Decode, None) => Err(InvalidVerdict::NeedsPrefill { row: choice.row }),
        (Role::Decode, Some(row)) if role(row) == Role::Prefill => Ok(()),
        (Role::Decode, Some(row)) => Err(InvalidVerdict::NotAPrefillWorker { row, role: role(row) }),
        (role, _) => Err(InvalidVerdict::CannotAnswer {
            row: choice.row,
            role,
        }),
    }
}

fn corrected(mut rejection: Rejection) -> Rejection {
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
    use crate::decision::{Choice, WaitsFor};

    const ONE_OF_FOUR: Offer<'_> = Offer::One { candidates: 4 };

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
            check(route(3), ONE_OF_FOUR),
            Ok(Decision::Route(Route {
                row: 3,
                prefill: None,
                score: 1.0
            }))
        );
    }

    #[test]
    fn a_row_past_the_last_is_refused() {
        assert_eq!(
            check(route(4), ONE_OF_FOUR),
            Err(InvalidVerdict::RowOutOfRange {
                row: 4,
                candidates: 4
            })
        );
        assert_eq!(
            check(route(u32::MAX), ONE_OF_FOUR),
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
        assert_eq!(
            check(verdict, ONE_OF_FOUR),
            Err(InvalidVerdict::PrefillNotOffered)
        );
    }

    #[test]
    fn a_hold_is_bounded_and_must_have_an_order() {
        let hold = |order, ask_again_ms| {
            Verdict::Queue(Hold {
                order,
                ask_again_ms,
                waits_for: None,
            })
        };
        assert_eq!(
            check(hold(1.0, 0), ONE_OF_FOUR),
            Ok(Decision::Queue(Hold {
                order: 1.0,
                ask_again_ms: 1,
                waits_for: None,
            }))
        );
        assert_eq!(
            check(hold(f64::INFINITY, u32::MAX), ONE_OF_FOUR),
            Ok(Decision::Queue(Hold {
                order: f64::INFINITY,
                ask_again_ms: 10_000,
                waits_for: None,
            }))
        );
        assert_eq!(
            check(hold(f64::NAN, 5), ONE_OF_FOUR),
            Err(InvalidVerdict::OrderNotANumber)
        );
    }

    #[test]
    fn a_hold_that_names_no_candidate_is_invalid() {
        let hold = |row| Hold {
            order: 1.0,
            ask_again_ms: 5,
            waits_for: Some(WaitsFor { row, work: 9 }),
        };
        assert_eq!(
            check(Verdict::Queue(hold(3)), ONE_OF_FOUR),
            Ok(Decision::Queue(hold(3)))
        );
        assert_eq!(
            check(Verdict::Queue(hold(4)), ONE_OF_FOUR),
            Err(InvalidVerdict::RowOutOfRange {
                row: 4,
                candidates: 4
            })
        );
    }

    #[test]
    fn a_rejection_is_always_an_error_with_a_short_reason() {
        let rejection = Rejection {
            status: 200,
            retry_after_ms: 0,
            reason: "ä".repeat(200),
        };
        let Ok(Decision::Reject(corrected)) = check(Verdict::Reject(rejection), ONE_OF_FOUR) else {
            panic!("not a rejection")
        };
        assert_eq!(corrected.status, 503);
        assert_eq!(corrected.reason.len(), 256);
    }

    #[track_caller]
    fn check_pair(row: u32, prefill: Option<u32>, alone: bool, expected: Result<(), InvalidVerdict>) {
        let roles = &[Role::Prefill, Role::Decode, Role::Mixed];
        let verdict = Verdict::Route(Choice {
            row,
            prefill,
            score: 0.0,
        });
        let checked = check(verdict, Offer::Pair { roles, alone });
        assert_eq!(
            checked.map(|_| ()),
            expected,
            "{row} with {prefill:?}, alone {alone}"
        );
    }

    #[test]
    fn each_leg_goes_to_a_worker_of_its_role_only() {
        const DECODE: Role = Role::Decode;
        let cannot_answer = |row, role| Err(InvalidVerdict::CannotAnswer { row, role });
        let no_prefill = |row, role| Err(InvalidVerdict::NotAPrefillWorker { row, role });
        for alone in [false, true] {
            check_pair(1, Some(0), alone, Ok(()));
            check_pair(2, None, alone, Ok(()));
            check_pair(0, None, alone, cannot_answer(0, Role::Prefill));
            check_pair(0, Some(0), alone, cannot_answer(0, Role::Prefill));
            check_pair(2, Some(0), alone, cannot_answer(2, Role::Mixed));
            check_pair(1, Some(1), alone, no_prefill(1, DECODE));
            check_pair(1, Some(2), alone, no_prefill(2, Role::Mixed));
            check_pair(
                1,
                Some(3),
                alone,
                Err(InvalidVerdict::RowOutOfRange {
                    row: 3,
                    candidates: 3,
                }),
            );
        }
        check_pair(1, None, true, Ok(()));
        check_pair(1, None, false, Err(InvalidVerdict::NeedsPrefill { row: 1 }));
    }
}
