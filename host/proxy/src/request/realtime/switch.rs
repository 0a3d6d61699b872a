//! Head of an answer that switches protocols.

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use worker_client::SendError;

use super::tunnel::{Tunnel, TunnelSlot};
use crate::base::label::Outcome;
use crate::base::reply::Refusal;
use crate::dispatch::split::UpstreamResponse;
use crate::request::lifecycle::RequestLifecycle;
use crate::request::response_body::Body;
use crate::request::stream;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const SWITCHES: HeaderValue = HeaderValue::from_static("Upgrade");

/// Adds the headers by which a connection is switched, to a worker's request or a client's answer. Those of the other
/// connection were removed.
pub(crate) fn ask_for(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, SWITCHES);
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Returns the head for the client of a worker's answer that switches protocols, with the tunnel in its extensions.
pub(crate) fn response(
    placed: UpstreamResponse,
    mut exchange: RequestLifecycle,
) -> Result<Response<Body>, Refusal> {
    let UpstreamResponse {
        mut answer, prefill, ..
    } = placed;
    stream::tell(&mut answer, prefill, &exchange);
    let (mut head, body) = answer.response.into_parts();
    let Some(worker) = body.into_upgraded() else {
        exchange.finish(Outcome::UpstreamError);
        return Err(SendError::UnexpectedUpgrade.into());
    };
    exchange.answered(StatusCode::SWITCHING_PROTOCOLS);
    exchange.member(answer.member).link.answered(answer.dispatch);
    ask_for(&mut head.headers);
    head.version = Version::HTTP_11;
    head.extensions.insert(TunnelSlot::of(Tunnel {
        worker,
        exchange,
        booking: answer.booking,
        member: answer.member,
        idle: answer.silence.idle,
        deadline: answer.silence.deadline,
    }));
    Ok(Response::from_parts(head, Body::from(Bytes::new())))
}
