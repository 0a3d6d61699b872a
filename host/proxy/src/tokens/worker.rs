//! Tokens from a worker: by its `/tokenize`, or by its render endpoint, which converts a request without answering it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use inference_api::Tokenized;
use observability::error_chain;
use thiserror::Error;
use tracing::debug;
use worker_client::{
    Authorization, ConnectionReuse, OutgoingRequest, ReadError, SendError, SendTimeouts, read_body,
};

use super::tokenize_request::{TokenPool, TokenizeRequest, TokensResult, TokensUnavailable};
use super::tries::{self, TriesError};
use crate::base::headers::X_REQUEST_ID;
use crate::base::label::TokensKind;
use crate::fleet::health::HealthStatus;
use crate::fleet::pool::{Member, WorkerPool};
use crate::fleet::worker::TokenPath;

/// Maximum length of a response in bytes: about four million tokens.
const LONGEST_ANSWER: usize = 32 << 20;

impl TokenPath {
    /// Returns the path and body of the query. `None` if the endpoint does not take such prompts.
    fn target(self, request: &TokenizeRequest<'_>) -> Option<(PathAndQuery, Bytes)> {
        let peek = request.peek;
        match self {
            Self::Tokenize => {
                let body = peek.tokenize_body()?;
                Some((PathAndQuery::from_static("/tokenize"), body.into()))
            }
            Self::Render => {
                let path = peek.render_path()?;
                Some((PathAndQuery::from_static(path), request.body.clone()))
            }
        }
    }

    fn read(self, answer: &[u8]) -> Result<Tokenized, inference_api::TokenizeError> {
        match self {
            Self::Tokenize => Tokenized::parse(answer),
            Self::Render => Tokenized::parse_rendered(answer),
        }
    }

    fn kind(self) -> TokensKind {
        match self {
            Self::Tokenize => TokensKind::Worker,
            Self::Render => TokensKind::Render,
        }
    }
}

/// Queries workers of the pool, in turn or concurrently, until one responds or the deadline passes.
pub(super) async fn query_workers(
    pool: TokenPool<'_>,
    request: &TokenizeRequest<'_>,
    path: TokenPath,
    deadline: Duration,
) -> TokensResult {
    let (target, body) = path.target(request).ok_or(TokensKind::Unsupported)?;
    let query = TokenQuery {
        request,
        authorization: &pool.workers.authorization,
        path,
        target,
        body,
    };
    let members = able(pool.workers, &request.peek.model, path, request.seq);
    let tokens = tries::first_tokens(pool, members, &query, deadline).await;
    tokens
        .map(|tokens| (path.kind(), tokens.into()))
        .map_err(|error| {
            let is_served = || pool.workers.serving(&request.peek.model).next().is_some();
            let (kind, error) = match error {
                // The request is refused: no tokenizer has failed.
                TriesError::NoWorker if !is_served() => (TokensKind::Unsupported, None),
                TriesError::NoWorker => (
                    TokensKind::Failed,
                    Some(
                        "no worker in service has a tokenizer that answers: all rest after failures"
                            .to_owned(),
                    ),
                ),
                TriesError::Timeout { tries } => (
                    TokensKind::Timeout,
                    Some(format!("{tries} worker(s) gave no tokens within {deadline:?}")),
                ),
                TriesError::Failed { worker, error } => {
                    let text = format!("worker {worker}: {}", error_chain(&error));
                    debug!(error = text, "no worker returned the prompt's tokens");
                    (TokensKind::Failed, (!error.is_of_the_prompt()).then_some(text))
                }
            };
            TokensUnavailable { kind, error }
        })
}

/// Returns the workers that serve the model and whose endpoint is not known to fail. Workers in service come before
/// those that were never reached. The first one rotates by request.
pub(crate) fn able<'a>(
    pool: &'a WorkerPool,
    model: &'a str,
    path: TokenPath,
    seq: u64,
) -> impl Iterator<Item = &'a Member> {
    let able = move |is_wanted: fn(HealthStatus) -> bool| {
        let is_able = move |member: &&Member| {
            is_wanted(member.link.status()) && !member.link.tokenizer_circuit_is_open(path)
        };
        let able = pool.serving(model).filter(is_able);
        let count = able.clone().count();
        let first = seq.checked_rem(count as u64).unwrap_or(0);
        able.cycle().skip(first as usize).take(count)
    };
    able(|status| !status.is_out()).chain(able(|status| status == HealthStatus::Pending))
}

/// Reason why a worker did not return a prompt's tokens.
#[derive(Debug, Error)]
pub(super) enum TokenTryError {
    #[error("request tokens")]
    Forward(#[source] SendError),
    #[error("read tokens to their end")]
    Broken(#[source] ReadError<hyper::Error>),
    #[error("get tokens: the worker has no such path, it answered {0}")]
    Absent(StatusCode),
    #[error("get tokens: the worker answered {0}")]
    Refused(StatusCode),
    #[error("read tokens")]
    Senseless(#[source] inference_api::TokenizeError),
}

impl TokenTryError {
    /// Returns `true` if the prompt itself was refused: another worker would refuse it too.
    pub(super) fn is_of_the_prompt(&self) -> bool {
        match self {
            Self::Refused(status) => {
                let is_the_workers = matches!(
                    *status,
                    StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
                );
                status.is_client_error() && !is_the_workers
            }
            _ => false,
        }
    }
}

/// Request to workers for a prompt's tokens.
pub(super) struct TokenQuery<'a> {
    request: &'a TokenizeRequest<'a>,
    authorization: &'a Authorization,
    pub(super) path: TokenPath,
    target: PathAndQuery,
    body: Bytes,
}

impl TokenQuery<'_> {
    /// Sends the request to one worker and parses the tokens.
    pub(super) async fn send(&self, member: &Member, deadline: Duration) -> Result<Vec<u32>, TokenTryError> {
        let request = self.request;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for name in [X_REQUEST_ID, AUTHORIZATION] {
            if let Some(value) = request.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        let outgoing = OutgoingRequest {
            method: &Method::POST,
            target: &self.target,
            headers: &headers,
            authorization: self.authorization,
            rank: None,
            reuse: ConnectionReuse::WithRetry,
            traceparent: None,
            body: &self.body,
        };
        let limits = SendTimeouts {
            connect: request.limits.connect_timeout,
            first_byte: request.limits.first_byte_timeout,
        };
        let upstream = &member.link.upstream;
        let answer = upstream
            .query(outgoing, limits)
            .await
            .map_err(TokenTryError::Forward)?;
        let status = answer.status();
        let mut body = answer.into_body();
        let answer = read_body(&mut body, LONGEST_ANSWER, deadline)
            .await
            .map_err(TokenTryError::Broken)?;
        upstream.checkin(body);
        if status.is_success() {
            let tokenized = self.path.read(&answer).map_err(TokenTryError::Senseless)?;
            return Ok(tokenized.tokens);
        }
        Err(if is_absence(status, &answer, &request.peek.model) {
            TokenTryError::Absent(status)
        } else {
            TokenTryError::Refused(status)
        })
    }
}

/// Returns `true` if a response means that the endpoint does not exist. A response for an unknown model names the
/// model, as vLLM's does. Without this check, a client could disable a tokenizer by requests for a model that does not
/// exist.
fn is_absence(status: StatusCode, answer: &[u8], model: &str) -> bool {
    match status {
        // vLLM forbids the render endpoint unless it is started with `--enable-scale-out`.
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED | StatusCode::FORBIDDEN => true,
        StatusCode::NOT_FOUND => {
            let model = serde_json::Value::from(model).to_string();
            let model = model.trim_matches('"');
            model.is_empty() || !String::from_utf8_lossy(answer).contains(model)
        }
        _ => false,
    }
}
