//! Learning a prompt's tokens: given by the client, or told by a worker. A prompt whose tokens stay unknown is
//! served all the same; its policy sees no matches.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use inference_api::{Peek, Tokenized};
use tokio::time::timeout;
use tracing::debug;

use crate::forward::{ForwardLimits, Outgoing, forward};
use crate::headers::X_REQUEST_ID;
use crate::intake;
use crate::label::TokensKind;
use crate::snapshot::{Member, PoolState, RequestLimits, TokenSource};

/// Longest answer of `/tokenize` that is read, in bytes: some four million tokens.
const LONGEST_ANSWER: usize = 32 << 20;

const TOKENIZE: PathAndQuery = PathAndQuery::from_static("/tokenize");

/// The prompt's tokens, where they can be had in time.
pub(crate) async fn learn(
    pool: &PoolState,
    peek: &Peek<'_>,
    seq: u64,
    headers: &HeaderMap,
    limits: &RequestLimits,
) -> Option<Vec<u32>> {
    let (kind, tokens) = ask(pool, peek, seq, headers, limits).await;
    pool.metrics.tokens(kind);
    tokens
}

async fn ask(
    pool: &PoolState,
    peek: &Peek<'_>,
    seq: u64,
    headers: &HeaderMap,
    limits: &RequestLimits,
) -> (TokensKind, Option<Vec<u32>>) {
    if let Some(tokens) = peek.token_ids() {
        return (TokensKind::Given, Some(tokens));
    }
    let TokenSource::Worker { timeout: patience } = pool.tokens else {
        return (TokensKind::Off, None);
    };
    let Some(body) = peek.tokenize_body() else {
        return (TokensKind::Unsupported, None);
    };
    let Some(member) = pick(pool, &peek.model, seq) else {
        return (TokensKind::Failed, None);
    };
    let answer = ask_worker(member, body.into(), headers, patience, limits);
    match timeout(patience, answer).await {
        Ok(Some(tokens)) => (TokensKind::Worker, Some(tokens)),
        Ok(None) => (TokensKind::Failed, None),
        Err(_) => (TokensKind::Timeout, None),
    }
}

/// A worker that serves the model; another for each request.
pub(crate) fn pick<'a>(pool: &'a PoolState, model: &str, seq: u64) -> Option<&'a Member> {
    let able = || {
        let serving = pool.members.iter().filter(|member| member.worker.serves(model));
        serving.filter(|member| !member.link.is_resting())
    };
    let count = able().count() as u64;
    able().nth(usize::try_from(seq.checked_rem(count)?).ok()?)
}

async fn ask_worker(
    member: &Member,
    body: Bytes,
    client: &HeaderMap,
    patience: Duration,
    limits: &RequestLimits,
) -> Option<Vec<u32>> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for name in [X_REQUEST_ID, http::header::AUTHORIZATION] {
        if let Some(value) = client.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let outgoing = Outgoing {
        method: &Method::POST,
        target: &TOKENIZE,
        headers: &headers,
        body: &body,
    };
    let limits = ForwardLimits {
        connect: limits.connect_timeout,
        first_byte: limits.first_byte_timeout,
    };
    let upstream = &member.link.upstream;
    let tokenized = async {
        let answer = forward(upstream, outgoing, limits)
            .await
            .map_err(|error| error.to_string())?;
        let status = answer.status();
        let mut body = answer.into_body();
        let answer = intake::collect(&mut body, LONGEST_ANSWER, patience)
            .await
            .map_err(|error| error.to_string())?;
        upstream.checkin(body);
        if !status.is_success() {
            return Err(format!("read tokens: the worker answered {status}"));
        }
        Tokenized::parse(&answer).map_err(|error| error.to_string())
    };
    match tokenized.await {
        Ok(tokenized) => Some(tokenized.tokens),
        Err(error) => {
            debug!(worker = %member.worker.spec().name, error, "failed to learn a prompt's tokens");
            None
        }
    }
}
