//! Lookup of a prompt in the prefix index for an operator: how much of it each worker of a pool holds.
//!
//! The prompt gets its tokens as a request's does. It is in no metric, no cache of the router and no log.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use inference_api::Endpoint;
use kv_index::{Prompt, WorkerMatch};
use routing::WorkerId;
use thiserror::Error;

use crate::base::label::TOKENS;
use crate::dispatch::pool_state::PoolState;
use crate::fleet::catalog;
use crate::proxy::Proxy;
use crate::request::isolation;
use crate::request::snapshot::Snapshot;
use crate::tokens::{self, PromptSender, TokenPool};

/// Form of a prompt, which decides how the body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptForm {
    /// `prompt`: text or token ids.
    Completion,
    /// `messages`.
    Chat,
}

/// A prompt to look up.
pub struct PrefixQuery {
    /// Name of the pool. `None`: that of the first route for the model.
    pub pool: Option<String>,
    /// Form of the prompt.
    pub form: PromptForm,
    /// Body of an inference request with the model and the prompt.
    pub body: Bytes,
    /// Tenant, where the pool isolates its tenants' prefixes.
    pub tenant: Option<String>,
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixLookup {
    /// Name of the pool.
    pub pool: Box<str>,
    /// Model of the prompt.
    pub model: Box<str>,
    /// Number of the prompt's tokens.
    pub tokens: usize,
    /// Source of the tokens.
    pub source: &'static str,
    /// Workers of the pool that serve the model, in their order.
    pub workers: Vec<HeldPrefix>,
}

/// Leading tokens of a prompt that one worker holds: device <= host <= any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPrefix {
    /// Name of the worker.
    pub worker: Box<str>,
    /// Set if the worker's events are flowing: its match is known, not assumed.
    pub is_live: bool,
    /// Block size in tokens, once it is known.
    pub block_size: Option<u32>,
    /// Match of the worker's best rank.
    pub held: WorkerMatch,
}

/// Reason why a lookup has no result. No variant quotes the prompt.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LookupError {
    /// The body is no request with a prompt.
    #[error("read the prompt: the body has no `prompt`, `messages` or `tokens` of their types")]
    Prompt,
    /// No pool has that name.
    #[error("find pool `{0}`: the configuration has none of that name")]
    NoPool(String),
    /// No route takes the model.
    #[error("find a route for model `{0}`: name a `pool`")]
    NoRoute(String),
    /// No worker of the pool serves the model.
    #[error("find a worker of pool `{pool}` that serves model `{model}`")]
    NotServed {
        /// Name of the pool.
        pool: Box<str>,
        /// Name of the model.
        model: String,
    },
    /// The prompt has no tokens.
    #[error("get the prompt's tokens: {0}")]
    NoTokens(&'static str),
}

impl Proxy {
    /// Looks up how much of a prompt the workers of a pool hold.
    ///
    /// # Errors
    /// [`LookupError`].
    pub async fn look_up(&self, query: &PrefixQuery) -> Result<PrefixLookup, LookupError> {
        let snapshot = self.snapshots.load();
        let endpoint = match query.form {
            PromptForm::Completion => Endpoint::Completions,
            PromptForm::Chat => Endpoint::ChatCompletions,
        };
        let peek = inference_api::peek(endpoint, &query.body).map_err(|_| LookupError::Prompt)?;
        let pool = find_pool(&snapshot, query.pool.as_deref(), &peek.model)?;
        let workers = &pool.workers;
        let served = catalog::look_up(workers, &peek.model).await;
        if served.is_empty() {
            return Err(LookupError::NotServed {
                pool: workers.name.clone(),
                model: peek.model.clone().into_owned(),
            });
        }
        let headers = HeaderMap::new();
        let to_tokenize = tokens::TokenizeRequest {
            peek: &peek,
            body: &query.body,
            endpoint,
            headers: &headers,
            sender: PromptSender::Unknown,
            seq: 0,
            limits: &snapshot.limits,
            is_kept: false,
        };
        let token_pool = TokenPool {
            workers,
            metrics: &pool.metrics.prompts,
            source: pool.prompts.tokens,
        };
        let found = Box::pin(tokens::find(&snapshot.tokenizing, token_pool, &to_tokenize)).await;
        let (kind, tokens) =
            found.map_err(|unavailable| LookupError::NoTokens(TOKENS[unavailable.kind as usize].1))?;
        let salt = if pool.bodies.isolate_prefixes {
            let tenant = query.tenant.as_deref().unwrap_or_default();
            Some(Cow::Owned(isolation::salt(tenant, peek.cache_salt().as_deref())))
        } else {
            peek.cache_salt()
        };
        let salt = isolation::lookup_salt(salt, peek.extra_key());
        let count = tokens.ids.len();
        let (mut prompt, _) = tokens.into_prompt(served.adapter(), salt.as_deref());
        Ok(PrefixLookup {
            pool: workers.name.clone(),
            model: (&*peek.model).into(),
            tokens: count,
            source: TOKENS[kind as usize].1,
            workers: self.holders(pool, &peek.model, &mut prompt),
        })
    }

    /// Returns the matches of the pool's workers that serve the model.
    fn holders(&self, pool: &PoolState, model: &str, prompt: &mut Prompt<'_>) -> Vec<HeldPrefix> {
        let sources = &self.dispatcher.sources;
        let members: Vec<_> = pool.workers.serving(model).collect();
        let ids: Vec<WorkerId> = members.iter().map(|member| member.worker.id()).collect();
        let sizes: Vec<_> = ids.iter().map(|&id| sources.index.block_size(id)).collect();
        for &size in sizes.iter().flatten() {
            // Here, so that the index is not locked while a long prompt is hashed.
            prompt.hashes(size, usize::MAX);
        }
        let mut found = Vec::new();
        sources.index.matches(prompt, &ids, &mut found);
        let rows = members.iter().zip(sizes).zip(found);
        rows.map(|((member, block_size), held)| HeldPrefix {
            worker: member.worker.spec().name.clone(),
            is_live: sources.live.is_live(member.worker.id()),
            block_size,
            held,
        })
        .collect()
    }
}

/// Returns the pool of that name, or the one that requests for the model go to.
fn find_pool<'a>(
    snapshot: &'a Snapshot,
    name: Option<&str>,
    model: &str,
) -> Result<&'a Arc<PoolState>, LookupError> {
    if let Some(name) = name {
        let found = snapshot.pool_named(name);
        return found.ok_or_else(|| LookupError::NoPool(name.to_owned()));
    }
    let route = snapshot.route(model, None, &HeaderMap::new());
    let route = route.ok_or_else(|| LookupError::NoRoute(model.to_owned()))?;
    Ok(snapshot.pool_of(route))
}
