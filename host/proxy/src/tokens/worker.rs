//! Tokens told by a worker: by its `/tokenize`, or by the path that renders a request without answering it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use inference_api::Tokenized;
use thiserror::Error;
use tokio::time::timeout;
use tracing::debug;

use super::{Learnt, Question};
use crate::forward::{self, ForwardError, ForwardLimits, Outgoing};
use crate::headers::X_REQUEST_ID;
use crate::health::Dispatch;
use crate::intake::{self, IntakeError};
use crate::label::TokensKind;
use crate::link::WorkerLink;
use crate::snapshot::{Member, PoolState};

/// A worker without the path is not asked again for so long, in milliseconds: it may be replaced by one with.
const ABSENT_MS: u64 = 5 * 60 * 1_000;
/// Longest answer that is read, in bytes: some four million tokens.
const LONGEST_ANSWER: usize = 32 << 20;

/// Which of a worker's paths is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// `/tokenize`, with a body made of the request's.
    Tokenize,
    /// `/v1/chat/completions/render` and the like, with the request's own body.
    Render,
}

impl Path {
    /// What is sent where; none where the path does not take such prompts.
    fn question(self, question: &Question<'_>) -> Option<(PathAndQuery, Bytes)> {
        let peek = question.peek;
        match self {
            Self::Tokenize => {
                let body = peek.tokenize_body()?;
                Some((PathAndQuery::from_static("/tokenize"), body.into()))
            }
            Self::Render => {
                let path = peek.render_path()?;
                Some((PathAndQuery::from_static(path), question.body.clone()))
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

/// Asks one worker of the pool.
pub(super) async fn ask(pool: &PoolState, question: &Question<'_>, path: Path, patience: Duration) -> Learnt {
    let sent = path.question(question).ok_or(TokensKind::Unsupported)?;
    let model = &question.peek.model;
    let member = able(pool, model, question.seq).next().ok_or(TokensKind::Failed)?;
    let dispatch = member.link.begin_tokenizing();
    let asked = ask_worker(member, sent, path, question, patience);
    let tokens = match timeout(patience, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(LearnError::Timeout(patience)),
    };
    learn_health(&member.link, dispatch, tokens.as_ref().err());
    tokens.map(|tokens| (path.kind(), tokens)).map_err(|error| {
        let kind = match error {
            LearnError::Timeout(_) => TokensKind::Timeout,
            _ => TokensKind::Failed,
        };
        let error = &error as &dyn std::error::Error;
        debug!(worker = %member.worker.spec().name, error, "failed to learn a prompt's tokens");
        kind
    })
}

/// The workers that serve the model and whose tokeniser is not known to be out; another is first for each request.
pub(crate) fn able<'a>(pool: &'a PoolState, model: &'a str, seq: u64) -> impl Iterator<Item = &'a Member> {
    let is_well = |member: &&Member| !member.link.is_out() && !member.link.tokenizer_is_resting();
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
    #[error("get tokens: the worker has no such path, it answered {0}")]
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
    (target, body): (PathAndQuery, Bytes),
    path: Path,
    question: &Question<'_>,
    patience: Duration,
) -> Result<Vec<u32>, LearnError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for name in [X_REQUEST_ID, AUTHORIZATION] {
        if let Some(value) = question.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let outgoing = Outgoing {
        method: &Method::POST,
        target: &target,
        headers: &headers,
        rank: None,
        once: false,
        body: &body,
    };
    let limits = ForwardLimits {
        connect: question.limits.connect_timeout,
        first_byte: question.limits.first_byte_timeout,
    };
    let upstream = &member.link.upstream;
    let answer = forward::ask(upstream, outgoing, limits)
        .await
        .map_err(LearnError::Forward)?;
    let status = answer.status();
    let mut body = answer.into_body();
    let answer = intake::collect(&mut body, LONGEST_ANSWER, patience)
        .await
        .map_err(LearnError::Broken)?;
    upstream.checkin(body);
    if status.is_success() {
        let tokenized = path.read(&answer).map_err(LearnError::Senseless)?;
        return Ok(tokenized.tokens);
    }
    Err(if is_absence(status, &answer, &question.peek.model) {
        LearnError::Absent(status)
    } else {
        LearnError::Refused(status)
    })
}

/// Whether an answer says that there is no such path, rather than no such model: then it would name the model,
/// as vLLM does. Else a client could put a tokeniser out of use by asking for a model that does not exist.
fn is_absence(status: StatusCode, answer: &[u8], model: &str) -> bool {
    match status {
        // vLLM forbids the path that renders unless it is started with `--enable-scale-out`.
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED | StatusCode::FORBIDDEN => true,
        StatusCode::NOT_FOUND => {
            let model = serde_json::Value::from(model).to_string();
            let model = model.trim_matches('"');
            model.is_empty() || !String::from_utf8_lossy(answer).contains(model)
        }
        _ => false,
    }
}
