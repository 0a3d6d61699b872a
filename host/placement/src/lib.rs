//! Placement of requests on workers: eligibility, feature columns, the call of the policy, the check of its verdict,
//! the fallback.
//!
//! The server, the simulator and shadows run this one procedure. Each provides a [`PlacementView`] of its workers,
//! queue, request and policies, and a [`PlacementObserver`] for its metrics and records. Both are static: a decision
//! has no dynamic dispatch but the call of the policy. No clock is read here and nothing waits. See
//! `host/adr/0029-placement.md`.
//!
//! Bottom up: values (`roles`, `shapes`, `matches`, `row`), traits above them (`query_source`, `view`), then the
//! procedure: `eligible` (the workers that may be chosen), `candidates` (the rows of one call), `queries` (their
//! prefix matches and other answers), `columns` and `kept_columns` (their numbers), `call` (one call), `context` (one
//! decision).

mod attempt_state;
mod call;
mod candidates;
mod columns;
mod context;
mod eligible;
mod kept_columns;
mod matches;
mod observer;
mod outcome;
mod part;
mod queries;
mod query_source;
mod roles;
mod row;
mod shapes;
mod view;

pub use attempt_state::AttemptState;
pub use call::PolicyCall;
pub use candidates::Candidates;
pub use context::DecisionContext;
pub use eligible::{EligibleSet, NoCandidate};
pub use matches::{CacheKnowledge, PrefixMatches};
pub use observer::{CallAnswer, CalledPolicy, PlacementObserver};
pub use outcome::{
    CallFault, FallbackCause, HoldTerms, PlacementOutcome, WorkerChoice, WorkerPlacement, check_answer,
};
pub use part::PlacementPart;
pub use queries::CallQueries;
pub use query_source::QuerySource;
pub use roles::RoleSet;
pub use row::{CandidateRow, CostFeature, RowNumbers};
pub use shapes::{AllowedShapes, Eligibility};
pub use view::{
    FleetVersion, FleetView, PlacementView, PolicyView, PoolView, RequestIdentity, RequestValues,
    RequestView, VersionedFleet, WorkerColumns,
};
