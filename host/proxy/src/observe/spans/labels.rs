//! Terms of traces for the router's own: kinds of outcomes, and GenAI operations.

use inference_api::EndpointClass;
use request_traces::EndKind;

use crate::base::label::Outcome;

/// Returns the kind of an outcome.
pub(super) fn kind_of(outcome: Outcome) -> EndKind {
    match outcome {
        Outcome::Complete => EndKind::Complete,
        Outcome::ClientLeft => EndKind::ClientLeft,
        Outcome::UpstreamError
        | Outcome::ShutDown
        | Outcome::IdleTimeout
        | Outcome::FirstByteTimeout
        | Outcome::Unreachable
        | Outcome::RequestTimeout => EndKind::Failed,
        Outcome::Rejected
        | Outcome::QueueFull
        | Outcome::QueueTimeout
        | Outcome::Invalid
        | Outcome::Unauthorized
        | Outcome::Limited
        | Outcome::Shed
        | Outcome::TooSlow
        | Outcome::BodiesFull => EndKind::Refused,
    }
}

/// Returns the GenAI operation of an endpoint.
pub(super) fn operation(class: EndpointClass) -> Option<&'static str> {
    match class {
        EndpointClass::Chat | EndpointClass::Message | EndpointClass::Response => Some("chat"),
        EndpointClass::Completion => Some("text_completion"),
        EndpointClass::Embedding => Some("embeddings"),
        _ => None,
    }
}
