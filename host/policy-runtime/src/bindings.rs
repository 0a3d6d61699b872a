//! Rust bindings of `wit/policy.wit`, generated at compile time, and conversions to the router's types.

use routing::{Phase, RequestFacts};

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "everything",
    // The candidates are borrowed: two memory copies into the guest and none before that.
    ownership: Borrowing { duplicate_if_necessary: true },
});

pub(crate) use conductor::policy::types::{Candidates, Request};
pub(crate) use conductor::policy::{host, index, inspect, queue, sessions, state, types, workers};
pub(crate) use exports::conductor::policy::policy::{Manifest, Plan};
pub(crate) use exports::conductor::policy::{events, parameters, policy, schedule, score, tick};

impl From<&RequestFacts> for Request {
    fn from(facts: &RequestFacts) -> Self {
        Self {
            seq: facts.seq,
            session: facts.session,
            phase: match facts.phase {
                Phase::Mixed => types::Phase::Mixed,
                Phase::Prefill => types::Phase::Prefill,
                Phase::Decode => types::Phase::Decode,
            },
            attempt: facts.attempt,
        }
    }
}

impl From<types::Verdict> for routing::Verdict {
    fn from(verdict: types::Verdict) -> Self {
        match verdict {
            types::Verdict::Route(choice) => Self::Route(routing::Choice {
                row: choice.row,
                prefill: choice.prefill,
                score: choice.score,
            }),
            types::Verdict::Queue(hold) => Self::Queue(routing::Hold {
                order: hold.order,
                ask_again_ms: hold.ask_again_ms,
                // Set during the call by `queue.wait-for`.
                waits_for: None,
            }),
            types::Verdict::Reject(rejection) => Self::Reject(routing::Rejection {
                status: rejection.status,
                retry_after_ms: rejection.retry_after_ms,
                reason: rejection.reason,
            }),
            types::Verdict::Pass => Self::Pass,
        }
    }
}
