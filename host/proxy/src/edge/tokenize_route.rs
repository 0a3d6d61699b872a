//! Tokenization for clients: `/tokenize` and `/detokenize`, forwarded to a worker of the model's pool.

use std::pin::pin;

use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use http::uri::PathAndQuery;
use inference_api::Endpoint;
use worker_client::{ConnectionReuse, OutgoingRequest, SendError, SendTimeouts, WorkerBody, read_body};

use crate::base::headers::{for_worker, name_worker, strip_hop_by_hop};
use crate::base::reply::Refusal;
use crate::base::timeouts::RequestLimits;
use crate::fleet::pool::{Member, WorkerPool};
use crate::fleet::worker::TokenPath;
use crate::limits::clients::RateLimitGuard;
use crate::proxy::Proxy;
use crate::request::body_reader::{self, IntakeError};
use crate::request::cut::unless_cut;
use crate::request::place::ClientHeaders;
use crate::request::responses::{self, ResponseKey};
use crate::request::snapshot::Snapshot;
use crate::tokens;

/// Maximum length in bytes of a forwarded response of `/tokenize`.
const LONGEST_ANSWER: usize = 64 << 20;

/// Answers a request that needs the tokenizer alone.
pub(crate) async fn tokenize(
    proxy: &Proxy,
    endpoint: Endpoint,
    mut request: Request<Body>,
) -> Response<Body> {
    let (seq, snapshot) = (proxy.next_seq(), proxy.snapshots.load());
    let shape = endpoint.spec().errors;
    let (client, reservation) = ClientHeaders::enter(proxy, &snapshot, seq, shape, request.headers_mut());
    // A request that is cut is dropped at the end of this block: that settles its client's usage before the headers of
    // its limits are set.
    let answered = {
        let answering = pin!(async {
            // Held until the response is read: the request counts towards the client's limits.
            let reservation = reservation?;
            let sender = TokenSender {
                client: client.name(),
                reservation: reservation.as_ref(),
            };
            tokenize_at_worker(proxy, &snapshot, seq, endpoint, sender, request).await
        });
        unless_cut(&proxy.readiness, answering).await
    };
    let mut response = answered.unwrap_or_else(|refusal| {
        proxy.metrics.edge.refused(&refusal);
        client.refuse(&refusal)
    });
    client.set(response.headers_mut());
    response.map(Body::from)
}

/// Sender of a request that needs the tokenizer alone.
#[derive(Debug, Clone, Copy)]
struct TokenSender<'a> {
    /// Name of the client. `None` where clients need no key.
    client: Option<&'a str>,
    reservation: Option<&'a RateLimitGuard>,
}

/// Forwards the request to a worker of the pool of its model, and to another one if the first fails. The input of a
/// response that goes on from another one is at that one's worker.
async fn tokenize_at_worker(
    proxy: &Proxy,
    snapshot: &Snapshot,
    seq: u64,
    endpoint: Endpoint,
    sender: TokenSender<'_>,
    request: Request<Body>,
) -> Result<Response<Bytes>, Refusal> {
    let limits = &snapshot.limits;
    let (mut head, body) = request.into_parts();
    let edge = &snapshot.edge.limits;
    let (pace, slot) = (edge.pace(limits.idle_timeout), snapshot.edge.slot());
    let (limit, headers) = (limits.body_bytes, &head.headers);
    let refused = |error: IntakeError<_>| error.refusal(axum::Error::into_inner);
    let body = body_reader::collect_or_drain(body, headers, limit, pace, slot, refused).await?;
    let body = inference_api::without_bom(body);
    let mut peek = inference_api::peek(endpoint, &body)?;
    edge.check_depth(&peek)?;
    snapshot.name_model(&mut peek, None, &head.headers);
    if let Some(reservation) = sender.reservation {
        reservation.check_model(&peek.model)?;
    }
    let not_found = || Refusal::not_served(&peek.model);
    let route = snapshot
        .route(&peek.model, None, &head.headers)
        .ok_or_else(not_found)?;
    let pool = snapshot.pool_of(route);
    if pool.workers.members.is_empty() {
        return Err(Refusal::PoolEmpty {
            pool: pool.workers.name.clone(),
        });
    }
    let mut members = tokenizing_workers(&pool.workers, &peek.model, proxy.run.seed(seq));
    if endpoint == Endpoint::RenderResponse
        && let Some(id) = peek.previous_response_id()
    {
        let key = ResponseKey {
            client: sender.client,
            id: &id,
        };
        if let Some(member) = responses::pinned(proxy, snapshot, pool, key)? {
            members = vec![&pool.workers.members[member]];
        }
    }
    if members.is_empty() {
        return Err(not_found());
    }
    for_worker(&mut head.headers);
    let target = head.uri.into_parts().path_and_query;
    let target = target.unwrap_or(PathAndQuery::from_static(endpoint.path()));
    let outgoing = OutgoingRequest {
        method: &head.method,
        target: &target,
        headers: &head.headers,
        authorization: &pool.workers.authorization,
        rank: None,
        reuse: ConnectionReuse::WithRetry,
        traceparent: None,
        body: &body,
    };
    let mut refusal = Refusal::NoWorker(None);
    for member in members.into_iter().take(limits.attempts as usize) {
        match forward_tokenize(member, outgoing, limits).await {
            Err(error) if error.may_go_elsewhere() => refusal = error.into(),
            answer => {
                return read_tokenized(member, answer?, limits, snapshot.settings.decision_headers).await;
            }
        }
    }
    Err(refusal)
}

/// Returns the workers that may tokenize for the model, in the order of the tries.
fn tokenizing_workers<'a>(workers: &'a WorkerPool, model: &'a str, seed: u64) -> Vec<&'a Member> {
    let able: Vec<&Member> = tokens::able(workers, model, TokenPath::Tokenize, seed).collect();
    match able.is_empty() {
        // If all workers are ejected, all are tried rather than none.
        true => workers.serving(model).collect(),
        false => able,
    }
}

async fn forward_tokenize(
    member: &Member,
    outgoing: OutgoingRequest<'_>,
    limits: &RequestLimits,
) -> Result<Response<WorkerBody>, SendError> {
    let link = &member.link;
    let dispatch = link.begin_tokenizing(TokenPath::Tokenize);
    let forward_limits = SendTimeouts {
        connect: limits.connect_timeout,
        first_byte: limits.first_byte_timeout,
    };
    let answer = link.upstream.forward(outgoing, forward_limits).await;
    let tokenizer = link.tokenizer(TokenPath::Tokenize);
    match &answer {
        Ok(answer) if answer.status().is_success() => tokenizer.succeeded(),
        Err(error) if !error.is_blameless() => {
            tokenizer.failed(dispatch, link.now_ms());
        }
        _ => {}
    }
    answer
}

async fn read_tokenized(
    member: &Member,
    answer: Response<WorkerBody>,
    limits: &RequestLimits,
    is_shown: bool,
) -> Result<Response<Bytes>, Refusal> {
    let link = &member.link;
    let (mut head, mut answer) = answer.into_parts();
    let body = read_body(&mut answer, LONGEST_ANSWER, limits.idle_timeout)
        .await
        .map_err(Refusal::WorkerBrokeOff)?;
    link.upstream.checkin(answer);
    strip_hop_by_hop(&mut head.headers);
    name_worker(&mut head.headers, &link.label, is_shown);
    Ok(Response::from_parts(head, body))
}
