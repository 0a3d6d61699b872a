//! Token sources of models, and the tokenization state that snapshots share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokenize::{CacheLimits, Model, TokenizationCache};
use wildmatch::WildMatch;

use super::metrics::TokensMetrics;
use super::threads::Threads;
use crate::limits::memory::MemoryStage;

/// Source of a text prompt's tokens for models without a tokenizer in the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSource {
    /// A worker's `/tokenize`.
    Worker {
        /// Time limit, after which the prompt's tokens are unknown.
        timeout: Duration,
    },
    /// A worker's `/v1/chat/completions/render` or `/v1/completions/render`.
    Render {
        /// Time limit, after which the prompt's tokens are unknown.
        timeout: Duration,
    },
    /// Each four bytes of the text count as a token. Useful if caches are assumed rather than reported.
    Text,
    /// No source: a policy sees no matches.
    Off,
}

/// Source of the tokens of a model's prompts.
#[derive(Debug, Clone)]
pub enum ModelTokens {
    /// Its own tokenizer, in the router.
    Local {
        /// The tokenizer.
        model: Arc<Model>,
        /// Time limit of the wait for a thread and of the tokenization there.
        timeout: Duration,
    },
    /// Another source.
    As(TokenSource),
}

/// Model with its token source. The first spec whose name matches applies.
#[derive(Debug, Clone)]
pub struct ModelSpec {
    /// Globs (`*`, `?`), one of which must match the model's name in a request.
    pub names: Vec<String>,
    /// Source of its tokens.
    pub tokens: ModelTokens,
}

/// Limits of tokenization in the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenizingLimits {
    /// Memory of the tokenization cache, in bytes.
    pub cache: usize,
    /// Memory of the states of conversations, in bytes.
    pub conversations: usize,
    /// Maximum size in bytes of a body, and of a prompt, that is tokenized in the router.
    pub longest: usize,
    /// Maximum bytes tokenized on the request's own thread.
    pub in_place: usize,
    /// Threads for all longer prompts.
    pub threads: usize,
    /// Maximum of prompts in the threads' queue.
    pub queue: usize,
}

impl Default for TokenizingLimits {
    fn default() -> Self {
        Self {
            cache: 64 << 20,
            conversations: 32 << 20,
            longest: 4 << 20,
            in_place: 2 << 10,
            threads: 1,
            queue: 64,
        }
    }
}

impl TokenizingLimits {
    /// Returns the limits of the cache's tables, divided by `share`.
    fn cache_limits(&self, share: usize) -> CacheLimits {
        CacheLimits {
            pieces: self.cache / share,
            conversations: self.conversations / share,
        }
    }
}

/// Settings of models.
#[derive(Debug, Clone, Default)]
pub struct ModelsSpec {
    /// Models in the order of matching. For other models, the pool's source applies.
    pub models: Vec<ModelSpec>,
    /// Limits of their tokenization.
    pub limits: TokenizingLimits,
}

/// Tokenization state of a snapshot.
#[derive(Debug)]
pub(crate) struct Tokenizing {
    models: Box<[(Box<[WildMatch]>, ModelSource)]>,
    pub(super) limits: TokenizingLimits,
    /// Tokenization cache, shared by all snapshots.
    pub(super) cache: Arc<TokenizationCache>,
    /// Thread pool, kept from the previous snapshot unless its size changes. `None` if no model has a tokenizer.
    threads: Option<Arc<Threads>>,
    pub(super) metrics: TokensMetrics,
}

#[derive(Debug)]
enum ModelSource {
    Local(Local),
    As(TokenSource),
}

/// Tokenizer in the router.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) model: Arc<Model>,
    pub(super) timeout: Duration,
    pub(super) threads: Arc<Threads>,
}

/// Source of a prompt's tokens.
#[derive(Debug)]
pub(super) enum Source<'a> {
    Local(&'a Local),
    As(TokenSource),
}

/// Checked [`ModelsSpec`], with the threads that it needs.
#[derive(Debug)]
pub(crate) struct TokenizingPlan {
    spec: ModelsSpec,
    threads: Option<Arc<Threads>>,
}

impl TokenizingPlan {
    /// Plans the successor of `before`. Its threads are kept unless their number or their queue changes.
    ///
    /// # Errors
    /// The system cannot start the threads.
    pub(crate) fn new(before: Option<&Tokenizing>, spec: ModelsSpec) -> io::Result<Self> {
        let limits = spec.limits;
        let is_local = |model: &ModelSpec| matches!(model.tokens, ModelTokens::Local { .. });
        if !spec.models.iter().any(is_local) {
            return Ok(Self { spec, threads: None });
        }
        let fits = |before: &&Tokenizing| {
            before.limits.threads == limits.threads && before.limits.queue == limits.queue
        };
        let kept = before.filter(fits).and_then(|before| before.threads.clone());
        let threads = match kept {
            Some(threads) => threads,
            None => Threads::start(limits.threads, limits.queue)?,
        };
        Ok(Self {
            spec,
            threads: Some(threads),
        })
    }
}

impl Tokenizing {
    /// Creates the successor of `before`, whose cache it shares.
    pub(crate) fn new(plan: TokenizingPlan, before: Option<&Self>, metrics: &TokensMetrics) -> Self {
        let TokenizingPlan { spec, threads } = plan;
        let limits = spec.limits;
        let cache = match before {
            Some(before) => Arc::clone(&before.cache),
            None => Arc::new(TokenizationCache::with_conversations(limits.cache_limits(1))),
        };
        let known = |tokens, threads: &Option<Arc<Threads>>| match (tokens, threads) {
            (ModelTokens::Local { model, timeout }, Some(threads)) => ModelSource::Local(Local {
                model,
                timeout,
                threads: Arc::clone(threads),
            }),
            (ModelTokens::Local { .. }, None) => ModelSource::As(TokenSource::Off),
            (ModelTokens::As(source), _) => ModelSource::As(source),
        };
        let models = spec.models.into_iter().map(|model| {
            let names = model.names.iter().map(|name| WildMatch::new(name)).collect();
            (names, known(model.tokens, &threads))
        });
        Self {
            models: models.collect(),
            limits,
            cache,
            threads,
            metrics: metrics.clone(),
        }
    }

    /// Resizes the shared cache to this snapshot's limit.
    pub(crate) fn set_limits(&self) {
        self.cache.set_limits(self.limits.cache_limits(1));
        self.metrics.cache_bytes(&self.cache);
    }

    /// Shrinks the cache to its size in a stage of memory pressure.
    pub(crate) fn shrink(&self, stage: MemoryStage) {
        let limits = match stage {
            MemoryStage::Calm => self.limits.cache_limits(1),
            MemoryStage::Saving => self.limits.cache_limits(4),
            MemoryStage::Refusing | MemoryStage::Ending => CacheLimits {
                pieces: 0,
                conversations: 0,
            },
        };
        self.cache.set_limits(limits);
        self.metrics.cache_bytes(&self.cache);
    }

    /// Returns `true` if any model is configured.
    pub(crate) fn has_models(&self) -> bool {
        !self.models.is_empty()
    }

    /// Returns `true` if the configuration has this name of a model.
    pub(crate) fn has_name(&self, model: &str) -> bool {
        let mut names = self.models.iter().flat_map(|(names, _)| names);
        names.any(|name| name.pattern() == model)
    }

    /// Returns the source of the first matching model, or else that of the pool.
    pub(super) fn source(&self, model: &str, pool: TokenSource) -> Source<'_> {
        let mut models = self.models.iter();
        let found = models.find(|(names, _)| names.iter().any(|name| name.matches(model)));
        match found {
            Some((_, ModelSource::Local(local))) => Source::Local(local),
            Some((_, ModelSource::As(source))) => Source::As(*source),
            None => Source::As(pool),
        }
    }
}
