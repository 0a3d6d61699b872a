//! Placement of a request, its attempts, and requests split over two workers.

pub(crate) mod answer_check;
pub(crate) mod attempt;
pub(crate) mod attempt_error;
pub(crate) mod call_observer;
pub(crate) mod crashes;
pub(crate) mod decide;
pub(crate) mod dispatcher;
pub(crate) mod expectation;
mod failures;
pub(crate) mod hashed_prompt;
pub(crate) mod inference_request;
pub(crate) mod load_guard;
pub(crate) mod matches;
pub(crate) mod metrics;
pub(crate) mod pool_state;
pub(crate) mod queries;
pub(crate) mod request_head;
pub(crate) mod retry;
pub(crate) mod route_policies;
pub(crate) mod router_view;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod shadow;
mod single;
pub(crate) mod sources;
pub(crate) mod speculative_insert;
pub(crate) mod split;
