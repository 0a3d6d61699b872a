//! One prompt to tokenize: its sender, its pool, and the result.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use inference_api::{Endpoint, Peek};
use kv_index::Prompt;
use tokenize::{KnownBeginning, TokenIds};

use super::metrics::PromptMetrics;
use super::spec::TokenSource;
use crate::base::address::address_key;
use crate::base::label::TokensKind;
use crate::base::timeouts::RequestLimits;
use crate::fleet::pool::WorkerPool;
use crate::limits::clients::Principal;

/// Prompt to tokenize, with the inputs of a request to a worker.
pub(crate) struct TokenizeRequest<'a> {
    pub(crate) peek: &'a Peek<'a>,
    /// Whole body of the client.
    pub(crate) body: &'a Bytes,
    pub(crate) endpoint: Endpoint,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) sender: PromptSender,
    /// Seed of the request, which selects the first worker.
    pub(crate) seq: u64,
    pub(crate) limits: &'a RequestLimits,
    /// Set if the tokenization cache may keep the prompt, and metrics count it.
    pub(crate) is_kept: bool,
}

/// Key by which clients take turns: all clients of a tenant count as one. Without keys, all clients of an address do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PromptSender {
    Tenant(Arc<str>),
    Address(IpAddr),
    Unknown,
}

impl PromptSender {
    pub(crate) fn of(client: Option<&Principal>, from: Option<IpAddr>) -> Self {
        match (client, from) {
            (Some(client), _) => Self::Tenant(Arc::clone(&client.tenant)),
            (None, Some(from)) => Self::Address(address_key(from)),
            (None, None) => Self::Unknown,
        }
    }
}

/// Pool whose prompts are tokenized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenPool<'a> {
    pub(crate) workers: &'a WorkerPool,
    pub(crate) metrics: &'a PromptMetrics,
    /// Source of the tokens of models without a table.
    pub(crate) source: TokenSource,
}

/// Tokens of a prompt.
#[derive(Debug)]
pub(crate) struct PromptTokens {
    pub(crate) ids: TokenIds,
    /// Known beginning of the prompt, which keeps the hashes of its blocks for the next turn.
    pub(crate) beginning: Option<KnownBeginning>,
}

impl From<Vec<u32>> for PromptTokens {
    fn from(ids: Vec<u32>) -> Self {
        Self {
            ids: ids.into(),
            beginning: None,
        }
    }
}

impl PromptTokens {
    /// Returns the prompt for queries of the index, and the beginning that keeps its hashes.
    pub(crate) fn into_prompt(
        self,
        lora: Option<&str>,
        cache_salt: Option<&str>,
    ) -> (Prompt<'static>, Option<KnownBeginning>) {
        let (shared, rest) = self.ids.into_parts();
        let mut prompt = Prompt::new(rest, lora, cache_salt);
        if let Some(shared) = shared {
            prompt = prompt.after(shared.count(), move |to| shared.read_into(to));
        }
        (prompt, self.beginning)
    }
}

/// Tokens and their source, or the reason for their absence.
pub(crate) type TokensResult = Result<(TokensKind, PromptTokens), TokensUnavailable>;

/// Reason why a prompt has no tokens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TokensUnavailable {
    pub(crate) kind: TokensKind,
    /// Fault of the router or of a worker. `None` if the prompt or the configuration is the reason.
    pub(super) error: Option<String>,
}

impl From<TokensKind> for TokensUnavailable {
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
