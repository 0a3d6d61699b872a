//! Head of an answer that switches protocols.

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use worker_client::SendError;

use super::tunnel::{Tunnel, TunnelSlot};
use crate::base::label::Outcome;
use crate::base::reply::Refusal;
use crate::dispatch::session::PlacedAnswer;
use crate::request::lifecycle::RequestLifecycle;
use crate::request::response_body::Body;
use crate::request::stream;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const SWITCHES: HeaderValue = HeaderValue::from_static("Upgrade");

/// Adds the headers by which a connection is switched, to a worker's request or a client's answer. Those of the other
/// connection were removed.
pub(crate) fn request_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, SWITCHES);
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Returns the head for the client of a worker's answer that switches protocols, with the tunnel in its extensions.
pub(crate) fn response(
    placed: PlacedAnswer,
    mut lifecycle: Box<RequestLifecycle>,
) -> Result<Response<Body>, Refusal> {
    let PlacedAnswer { mut answer, prefill } = placed;
    stream::report_decision(&mut answer, prefill.as_deref(), &lifecycle);
    let answer = *answer;
    let (mut head, body) = answer.response.into_parts();
    let Some(worker) = body.into_upgraded() else {
        lifecycle.finish(Outcome::UpstreamError);
        return Err(SendError::UnexpectedUpgrade.into());
    };
    let attempt = answer.attempt;
    lifecycle.answered(StatusCode::SWITCHING_PROTOCOLS);
    lifecycle.member(attempt.member).link.answered(attempt.token);
    request_upgrade(&mut head.headers);
    head.version = Version::HTTP_11;
    head.extensions.insert(TunnelSlot::of(Tunnel {
        worker,
        lifecycle,
        lease: attempt.lease,
        member: attempt.member,
        idle: answer.timeouts.idle,
        deadline: answer.timeouts.deadline,
    }));
    Ok(Response::from_parts(head, Body::from(Bytes::new())))
}
