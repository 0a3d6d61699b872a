//! Tokenisation of prompts: by the client, by the model's own tokenizer in the router, or by a worker. A prompt without
//! tokens is served too; its policy sees no matches.
//!
//! `local.rs` tokenises in the router. Long prompts use the thread pool of `threads.rs`, where clients take turns
//! (`turns.rs`). `worker.rs` queries workers, with the hedged attempts of `tries.rs`, whose pace follows the pool's
//! latencies. `text.rs` uses blocks of text in place of tokens. `spec.rs` configures the source of each model.

mod local;
mod metrics;
mod spec;
mod text;
mod threads;
mod tries;
mod turns;
mod worker;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use inference_api::{Endpoint, Peek};

use crate::base::label::TokensKind;
use crate::base::timeouts::RequestLimits;
use crate::edge::connections;
use crate::fleet::pool::WorkerPool;
use crate::limits::clients::Principal;
use crate::metrics::PoolMetrics;

pub(crate) use self::metrics::{TokenTries, TokensMetrics};
use self::spec::Source;
pub use self::spec::{ModelSpec, ModelTokens, ModelsSpec, TokenSource, TokenizingLimits};
pub(crate) use self::spec::{Tokenizing, TokenizingPlan};
use self::worker::Path;
pub(crate) use self::worker::able;

/// Prompt, with the inputs for a query of a worker.
pub(crate) struct Question<'a> {
    pub(crate) peek: &'a Peek<'a>,
    /// Whole body of the client.
    pub(crate) body: &'a Bytes,
    pub(crate) endpoint: Endpoint,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) sender: PromptSender,
    /// Seed of the request, which selects the first worker.
    pub(crate) seq: u64,
    pub(crate) limits: &'a RequestLimits,
}

/// Key by which clients take turns: all clients of a tenant count as one. Without keys, all clients of an address do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PromptSender {
    Tenant(Arc<str>),
    Address(IpAddr),
    Unknown,
}

impl PromptSender {
    pub(crate) fn of(caller: Option<&Principal>, from: Option<IpAddr>) -> Self {
        match (caller, from) {
            (Some(caller), _) => Self::Tenant(Arc::clone(&caller.tenant)),
            (None, Some(from)) => Self::Address(connections::counted(from)),
            (None, None) => Self::Unknown,
        }
    }
}

/// Pool whose prompts are tokenized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenPool<'a> {
    pub(crate) workers: &'a WorkerPool,
    pub(crate) metrics: &'a PoolMetrics,
    /// Source of the tokens of models without a table.
    pub(crate) source: TokenSource,
}

/// Determines the prompt's tokens if that is possible in time.
pub(crate) async fn learn(
    tokenizing: &Tokenizing,
    pool: TokenPool<'_>,
    question: &Question<'_>,
) -> Option<Vec<u32>> {
    let peek = question.peek;
    let learnt = match peek.token_ids() {
        Some(tokens) => Ok((TokensKind::Given, tokens)),
        None => match tokenizing.source(&peek.model, pool.source) {
            Source::Local(_) | Source::As(TokenSource::Text)
                if question.body.len() > tokenizing.limits.longest =>
            {
                Err(TokensKind::TooLong.into())
            }
            Source::Local(local) => local::tokens(local, tokenizing, question).await,
            Source::As(TokenSource::Worker { timeout }) => {
                worker::ask(pool, question, Path::Tokenize, timeout).await
            }
            Source::As(TokenSource::Render { timeout }) => {
                worker::ask(pool, question, Path::Render, timeout).await
            }
            Source::As(TokenSource::Text) => text::tokens(peek)
                .map(|tokens| (TokensKind::Text, tokens))
                .ok_or(TokensKind::Unsupported.into()),
            Source::As(TokenSource::Off) => Err(TokensKind::Off.into()),
        },
    };
    let (kind, tokens) = match learnt {
        Ok((kind, tokens)) => {
            pool.workers.knowledge.timeouts.succeeded(&peek.model);
            pool.workers.knowledge.failures.succeeded(&peek.model);
            (kind, Some(tokens))
        }
        Err(Unlearnt { kind, error }) => {
            if let Some(error) = error {
                let spell = match kind {
                    TokensKind::Timeout => &pool.workers.knowledge.timeouts,
                    _ => &pool.workers.knowledge.failures,
                };
                spell.failed(&peek.model, &error);
            }
            (kind, None)
        }
    };
    pool.metrics.tokens(kind);
    tokens
}

/// The tokens and their source, or the reason for their absence.
type Learnt = Result<(TokensKind, Vec<u32>), Unlearnt>;

/// Reason why a prompt has no tokens.
#[derive(Debug, PartialEq, Eq)]
struct Unlearnt {
    kind: TokensKind,
    /// Fault of the router or of a worker. `None` if the prompt or the configuration is the reason.
    error: Option<String>,
}

impl From<TokensKind> for Unlearnt {
    fn from(kind: TokensKind) -> Self {
        let error = match kind {
            TokensKind::Timeout => Some("no thread of the router made the tokens in time"),
            TokensKind::QueueFull => Some("too many prompts wait for the router's tokenizing threads"),
            TokensKind::Failed => Some("the router's tokenizer failed"),
            _ => None,
        };
        Self {
            kind,
            error: error.map(str::to_owned),
        }
    }
}
