//! Tokens made in the router, by the model's own tokenizer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use inference_api::{Peek, PromptParts};
use tokenize::{Chat, Model, PrefixCache, Prepared, Rendered, Tokens};
use tokio::time::timeout_at;
use tracing::debug;

use super::Learnt;
use super::spec::{Local, Tokenizing};
use crate::label::TokensKind;

/// What is known of the prompt is looked up where it came in, and so is little that is new; more is left to a thread.
pub(super) async fn tokens(local: &Local, tokenizing: &Tokenizing, peek: &Peek<'_>) -> Learnt {
    let began = Instant::now();
    let metrics = &tokenizing.metrics;
    let cache = &tokenizing.cache;
    let model = &local.model;
    let rendered = rendered(model, peek).ok_or(TokensKind::Unsupported)?;
    let prepared = guarded(|| model.prepare(rendered, cache)).ok_or(TokensKind::Failed)?;
    let tokens = if prepared.new_bytes() <= tokenizing.limits.in_place {
        let tokens = complete(model, prepared, cache);
        metrics.in_place(began);
        tokens
    } else {
        let tokens = apart(local, prepared, cache, began).await?;
        metrics.apart(began);
        tokens
    };
    let Tokens { ids, cached } = tokens.ok_or(TokensKind::Failed)?;
    metrics.count(&ids, cached, cache);
    Ok((TokensKind::Local, ids))
}

async fn apart(
    local: &Local,
    prepared: Prepared,
    cache: &Arc<PrefixCache>,
    began: Instant,
) -> Result<Option<Tokens>, TokensKind> {
    let deadline = began + local.timeout;
    let (model, cache) = (Arc::clone(&local.model), Arc::clone(cache));
    let work = move || complete(&model, prepared, &cache);
    let waiting = local
        .threads
        .do_by(deadline, work)
        .map_err(|_| TokensKind::QueueFull)?;
    match timeout_at(deadline.into(), waiting).await {
        Ok(Ok(tokens)) => Ok(tokens),
        // Its turn came too late.
        Ok(Err(_)) | Err(_) => Err(TokensKind::Timeout),
    }
}

fn complete(model: &Model, prepared: Prepared, cache: &PrefixCache) -> Option<Tokens> {
    match guarded(|| model.complete(prepared, cache))? {
        Ok(tokens) => Some(tokens),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            debug!(error, "failed to tokenise a prompt");
            None
        }
    }
}

/// A tokenizer that panics costs the request its tokens, and nobody a thread. What it leaves behind is whole: the cache
/// keeps only what was finished.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// The prompt as the tokenizer gets it; none where only an engine could tell.
fn rendered(model: &Model, peek: &Peek<'_>) -> Option<Rendered> {
    let chat = match peek.prompt_parts()? {
        PromptParts::Text {
            text,
            add_special_tokens,
        } => return Some(Rendered::text(text.into_owned(), add_special_tokens)),
        PromptParts::Chat(chat) => chat,
    };
    let chat = Chat {
        messages: &chat.messages,
        tools: chat.tools,
        documents: chat.documents,
        reasoning_effort: chat.reasoning_effort,
        chat_template_kwargs: chat.chat_template_kwargs,
        add_generation_prompt: chat.add_generation_prompt,
        continue_final_message: chat.continue_final_message,
        add_special_tokens: chat.add_special_tokens,
    };
    match guarded(|| model.render(&chat, SystemTime::now()))? {
        Ok(rendered) => Some(rendered),
        Err(error) => {
            // Not its source: a template's error may quote the prompt.
            debug!(%error, "a chat is not rendered here");
            None
        }
    }
}
