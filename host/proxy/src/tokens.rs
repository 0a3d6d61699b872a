//! Learning a prompt's tokens: given by the client, or told by a worker. A prompt whose tokens stay unknown is
//! served all the same; its policy sees no matches.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use inference_api::{Peek, Tokenized};
use thiserror::Error;
use tokio::time::timeout;
use tracing::debug;

use crate::cooldown::Dispatch;
use crate::forward::{ForwardError, ForwardLimits, Outgoing, forward};
use crate::headers::X_REQUEST_ID;
use crate::intake::{self, IntakeError};
use crate::label::TokensKind;
use crate::link::WorkerLink;
use crate::snapshot::{Member, PoolState, RequestLimits, TokenSource};

/// A worker without `/tokenize` is not asked again for so long, in milliseconds: it may be replaced by one with.
const ABSENT_MS: u64 = 5 * 60 * 1_000;
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
    let Some(member) = able(pool, &peek.model, seq).next() else {
        return (TokensKind::Failed, None);
    };
    let dispatch = member.link.begin_tokenizing();
    let asked = ask_worker(member, body.into(), &peek.model, headers, patience, limits);
    let tokens = match timeout(patience, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(LearnError::Timeout(patience)),
    };
    learn_health(&member.link, dispatch, tokens.as_ref().err());
    match tokens {
        Ok(tokens) => (TokensKind::Worker, Some(tokens)),
        Err(error) => {
            let kind = match error {
                LearnError::Timeout(_) => TokensKind::Timeout,
                _ => TokensKind::Failed,
            };
            let error = &error as &dyn std::error::Error;
            debug!(worker = %member.worker.spec().name, error, "failed to learn a prompt's tokens");
            (kind, None)
        }
    }
}

/// The workers that serve the model and whose tokeniser is not known to be out; another is first for each request.
pub(crate) fn able<'a>(pool: &'a PoolState, model: &'a str, seq: u64) -> impl Iterator<Item = &'a Member> {
    let is_well = |member: &&Member| !member.link.is_resting() && !member.link.tokenizer_is_resting();
    let able = pool.serving(model).filter(is_well);
    let count = able.clone().count();
    let first = seq.checked_rem(count as u64).unwrap_or(0);
    able.cycle().skip(first as usize).take(count)
}

/// A worker did not tell a prompt's tokens.
#[derive(Debug, Error)]
enum LearnError {
    #[error("ask for tokens")]
    Forward(#[source] ForwardError),
    #[error("get tokens within {0:?}")]
    Timeout(Duration),
    #[error("read tokens to their end")]
    Broken(#[source] IntakeError<hyper::Error>),
    #[error("get tokens: the worker has no `/tokenize`, it answered {0}")]
    Absent(StatusCode),
    #[error("get tokens: the worker answered {0}")]
    Refused(StatusCode),
    #[error("read tokens")]
    Senseless(#[source] inference_api::TokenizeError),
}

/// A tokeniser that is out shall not cost every request the time to find that out.
fn learn_health(link: &WorkerLink, dispatch: Dispatch, error: Option<&LearnError>) {
    match error {
        None => link.tokenizer.succeeded(),
        // Other refusals are the affair of this one prompt.
        Some(LearnError::Refused(status)) if !matches!(status.as_u16(), 502..=504) => {
            link.tokenizer.succeeded();
        }
        Some(LearnError::Absent(_)) => link.tokenizer.absent(link.now_ms(), ABSENT_MS),
        Some(_) => {
            link.tokenizer.failed(dispatch, link.now_ms());
        }
    }
}

async fn ask_worker(
    member: &Member,
    body: Bytes,
    model: &str,
    client: &HeaderMap,
    patience: Duration,
    limits: &RequestLimits,
) -> Result<Vec<u32>, LearnError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for name in [X_REQUEST_ID, AUTHORIZATION] {
        if let Some(value) = client.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let outgoing = Outgoing {
        method: &Method::POST,
        target: &TOKENIZE,
        headers: &headers,
        rank: None,
        once: false,
        body: &body,
    };
    let limits = ForwardLimits {
        connect: limits.connect_timeout,
        first_byte: limits.first_byte_timeout,
    };
    let upstream = &member.link.upstream;
    let answer = forward(upstream, outgoing, limits)
        .await
        .map_err(LearnError::Forward)?;
    let status = answer.status();
    let mut body = answer.into_body();
    let answer = intake::collect(&mut body, LONGEST_ANSWER, patience)
        .await
        .map_err(LearnError::Broken)?;
    upstream.checkin(body);
    if status.is_success() {
        let tokenized = Tokenized::parse(&answer).map_err(LearnError::Senseless)?;
        return Ok(tokenized.tokens);
    }
    Err(if is_absence(status, &answer, model) {
        LearnError::Absent(status)
    } else {
        LearnError::Refused(status)
    })
}

/// Whether an answer says that there is no such path, rather than no such model: then it would name the model,
/// as vLLM does. Else a client could put a tokeniser out of use by asking for a model that does not exist.
fn is_absence(status: StatusCode, answer: &[u8], model: &str) -> bool {
    match status {
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => true,
        StatusCode::NOT_FOUND => {
            let model = serde_json::Value::from(model).to_string();
            let model = model.trim_matches('"');
            model.is_empty() || !String::from_utf8_lossy(answer).contains(model)
        }
        _ => false,
    }
}
