//! Tokenization of prompts: by the client, by the model's own tokenizer in the router, or by a worker. A prompt without
//! tokens is served too; its policy sees no matches.
//!
//! `local/` tokenizes in the router. Long prompts use the thread pool of `threads.rs`, where clients take turns
//! (`turns.rs`). `worker.rs` queries workers, with the hedged attempts of `tries.rs`, whose pace follows the pool's
//! latencies. `text.rs` uses blocks of text in place of tokens. `spec.rs` configures the source of each model,
//! `tokenize_request.rs` has one prompt to tokenize and its result.

mod local;
mod metrics;
mod spec;
mod text;
mod threads;
mod tokenize_request;
mod tries;
mod turns;
mod worker;

use inference_api::read_ids;
use tokenize::ListedIds;
use tokio::task::yield_now;

pub(crate) use self::metrics::{PromptMetrics, TokensMetrics};
use self::spec::Source;
pub use self::spec::{ModelSpec, ModelTokens, ModelsSpec, TokenSource, TokenizingLimits};
pub(crate) use self::spec::{Tokenizing, TokenizingPlan};
pub(crate) use self::tokenize_request::{
    PromptSender, PromptTokens, TokenPool, TokenizeRequest, TokensResult, TokensUnavailable,
};
pub(crate) use self::worker::able;
use crate::base::label::TokensKind;
use crate::fleet::worker::TokenPath;

/// Maximum size in bytes of lists of ids that are read without a pause.
const SHORT_LIST: usize = 64 << 10;
/// Strides of a longer list, of a KiB each, that are read before other requests of the thread go on.
const STRIDES_AT_A_TIME: usize = 64;

/// Determines the prompt's tokens if that is possible in time, and counts the result.
pub(crate) async fn tokenize(
    tokenizing: &Tokenizing,
    pool: TokenPool<'_>,
    request: &TokenizeRequest<'_>,
) -> Option<PromptTokens> {
    let peek = request.peek;
    let (kind, tokens) = match find(tokenizing, pool, request).await {
        Ok((kind, tokens)) => {
            pool.workers.knowledge.timeouts.succeeded(&peek.model);
            pool.workers.knowledge.failures.succeeded(&peek.model);
            (kind, Some(tokens))
        }
        Err(TokensUnavailable { kind, error }) => {
            if let Some(error) = error {
                let streak = match kind {
                    TokensKind::Timeout => &pool.workers.knowledge.timeouts,
                    _ => &pool.workers.knowledge.failures,
                };
                streak.failed(&peek.model, &error);
            }
            (kind, None)
        }
    };
    pool.metrics.count(kind);
    tokens
}

/// Determines the prompt's tokens with their source, or the reason for their absence.
pub(crate) async fn find(
    tokenizing: &Tokenizing,
    pool: TokenPool<'_>,
    request: &TokenizeRequest<'_>,
) -> TokensResult {
    let peek = request.peek;
    if let Some(list) = peek.id_list() {
        if request.body.len() > tokenizing.limits.longest {
            return Err(TokensKind::TooLong.into());
        }
        let given = match list.len() <= SHORT_LIST {
            true => given(tokenizing, request, list),
            // Boxed: prompts of text would carry this size.
            false => Box::pin(given_in_parts(tokenizing, request, list)).await,
        };
        if let Some(given) = given {
            return Ok((TokensKind::Given, given));
        }
    }
    match tokenizing.source(&peek.model, pool.source) {
        Source::Local(_) | Source::As(TokenSource::Text)
            if request.body.len() > tokenizing.limits.longest =>
        {
            Err(TokensKind::TooLong.into())
        }
        Source::Local(local) => local::tokens(local, tokenizing, request).await,
        // Boxed: prompts that are tokenized here would carry this size.
        Source::As(TokenSource::Worker { timeout }) => {
            Box::pin(worker::query_workers(pool, request, TokenPath::Tokenize, timeout)).await
        }
        Source::As(TokenSource::Render { timeout }) => {
            Box::pin(worker::query_workers(pool, request, TokenPath::Render, timeout)).await
        }
        Source::As(TokenSource::Text) => text::tokens(peek)
            .map(|tokens| (TokensKind::Text, tokens.into()))
            .ok_or(TokensKind::Unsupported.into()),
        Source::As(TokenSource::Off) => Err(TokensKind::Off.into()),
    }
}

/// Reads the ids that the client sent. Those of earlier turns are known.
fn given(tokenizing: &Tokenizing, request: &TokenizeRequest<'_>, list: &str) -> Option<PromptTokens> {
    if !request.is_kept {
        return read_ids(list).map(PromptTokens::from);
    }
    tokenizing.cache.read_ids(list, read_ids).map(PromptTokens::from)
}

/// Reads the ids of a long list. Other requests of the thread go on after each part.
async fn given_in_parts(
    tokenizing: &Tokenizing,
    request: &TokenizeRequest<'_>,
    list: &str,
) -> Option<PromptTokens> {
    if !request.is_kept {
        return given(tokenizing, request, list);
    }
    let mut reader = tokenizing.cache.id_reader(list, read_ids);
    while reader.read_strides(STRIDES_AT_A_TIME)? {
        yield_now().await;
    }
    reader.finish().map(PromptTokens::from)
}

impl From<ListedIds> for PromptTokens {
    fn from(listed: ListedIds) -> Self {
        Self {
            ids: listed.ids.into(),
            beginning: listed.beginning,
        }
    }
}
