//! Placement of requests on workers: eligibility, feature columns, the call of the policy, the check of its verdict, the fallback.
//!
//! The server, the simulator and shadows run this one procedure. Each provides a [`PlacementView`] of its workers, queue, request
//! and policies, and a [`PlacementObserver`] for its metrics and records. Both are static: a decision has no dynamic dispatch but
//! the call of the policy. No clock is read here and nothing waits. See `host/adr/0029-placement.md`.
//!
//! Bottom up: `roles` and `eligible` (who may be chosen), `candidates` (the rows of one call), `matches` and `queries` (what the
//! prefix index knows of them), `columns` (their numbers), `call` (one call), `context` (one decision).

mod call;
mod candidates;
mod columns;
mod context;
mod eligible;
mod matches;
mod observer;
mod outcome;
mod queries;
mod roles;
mod view;

pub use call::PolicyCall;
pub use candidates::{AttemptState, Candidates};
pub use columns::{CandidateRow, ColumnInput, CostFeature, lay_out};
pub use context::{DecisionContext, PlacementPart};
pub use eligible::{AllowedShapes, Eligibility, EligibleSet, NoCandidate};
pub use matches::{CacheKnowledge, PrefixMatches};
pub use observer::{CallAnswer, CalledPolicy, PlacementObserver};
pub use outcome::{CallFault, HoldTerms, PlacementOutcome, WorkerChoice, WorkerPlacement, check_answer};
pub use queries::{CallQueries, QuerySource};
pub use roles::RoleSet;
pub use view::{
    FleetView, PlacementView, PolicyView, PoolView, RequestIdentity, RequestValues, RequestView,
    WorkerColumns,
};
