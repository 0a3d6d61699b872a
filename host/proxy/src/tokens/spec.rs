//! Where the tokens of a model's prompts come from, and what is kept for that from one snapshot to the next.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokenize::{Model, PrefixCache};
use wildmatch::WildMatch;

use super::metrics::TokensMetrics;
use super::threads::Threads;
use crate::limits::memory::MemoryStage;

/// How the tokens of a text prompt become known, where the router has no tokenizer for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSource {
    /// A worker's `/tokenize` is asked, for at most so long.
    Worker {
        /// Over it, the prompt's tokens are unknown.
        timeout: Duration,
    },
    /// A worker's `/v1/chat/completions/render` or `/v1/completions/render` is, likewise.
    Render {
        /// Over it, the prompt's tokens are unknown.
        timeout: Duration,
    },
    /// Each four bytes of the text count as a token: of use where caches are assumed, not told of.
    Text,
    /// They do not: a policy sees no matches.
    Off,
}

/// How the tokens of a model's prompts become known.
#[derive(Debug, Clone)]
pub enum ModelTokens {
    /// By its own tokenizer.
    Local {
        /// The tokenizer.
        model: Arc<Model>,
        /// How long a prompt may wait for a thread and be tokenised there.
        timeout: Duration,
    },
    /// Otherwise.
    As(TokenSource),
}

/// A model and its tokens. The first whose name fits counts.
#[derive(Debug, Clone)]
pub struct ModelSpec {
    /// Globs (`*`, `?`), one of which the name must match that a request carries.
    pub names: Vec<String>,
    /// Where its tokens come from.
    pub tokens: ModelTokens,
}

/// What tokenising may take of the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenizingLimits {
    /// Memory of the cache of prefixes, in bytes.
    pub cache: usize,
    /// Longest body of which tokens are made in the router, and longest prompt, in bytes.
    pub longest: usize,
    /// Most bytes that are tokenised on the request's own thread.
    pub in_place: usize,
    /// Threads for all longer prompts.
    pub threads: usize,
    /// Most prompts that wait for them.
    pub queue: usize,
}

impl Default for TokenizingLimits {
    fn default() -> Self {
        Self {
            cache: 64 << 20,
            longest: 4 << 20,
            in_place: 2 << 10,
            threads: 1,
            queue: 64,
        }
    }
}

/// Everything that is told of models.
#[derive(Debug, Clone, Default)]
pub struct ModelsSpec {
    /// In the order in which they are tried; for other models the pool says where tokens come from.
    pub models: Vec<ModelSpec>,
    /// What they may take.
    pub limits: TokenizingLimits,
}

/// What a snapshot knows of tokens.
#[derive(Debug)]
pub(crate) struct Tokenizing {
    models: Box<[(Box<[WildMatch]>, Known)]>,
    pub(super) limits: TokenizingLimits,
    /// The same one in every snapshot.
    pub(super) cache: Arc<PrefixCache>,
    /// Those of the snapshot before, unless their number is another; none where no model has a tokenizer.
    threads: Option<Arc<Threads>>,
    pub(super) metrics: TokensMetrics,
}

#[derive(Debug)]
enum Known {
    Local(Local),
    As(TokenSource),
}

/// A tokenizer in the router.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) model: Arc<Model>,
    pub(super) timeout: Duration,
    pub(super) threads: Arc<Threads>,
}

/// Where a prompt's tokens come from.
#[derive(Debug)]
pub(super) enum Source<'a> {
    Local(&'a Local),
    As(TokenSource),
}

/// A checked [`ModelsSpec`], with the threads that it needs.
#[derive(Debug)]
pub(crate) struct TokenizingPlan {
    spec: ModelsSpec,
    threads: Option<Arc<Threads>>,
}

impl TokenizingPlan {
    /// Plans what is to follow `before`, whose threads are kept unless their number or their queue changes.
    ///
    /// # Errors
    /// Where the system gives no threads.
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
    /// What follows `before`, whose cache it shares.
    pub(crate) fn new(plan: TokenizingPlan, before: Option<&Self>, metrics: &TokensMetrics) -> Self {
        let TokenizingPlan { spec, threads } = plan;
        let limits = spec.limits;
        let cache = match before {
            Some(before) => Arc::clone(&before.cache),
            None => Arc::new(PrefixCache::new(limits.cache)),
        };
        let known = |tokens, threads: &Option<Arc<Threads>>| match (tokens, threads) {
            (ModelTokens::Local { model, timeout }, Some(threads)) => Known::Local(Local {
                model,
                timeout,
                threads: Arc::clone(threads),
            }),
            (ModelTokens::Local { .. }, None) => Known::As(TokenSource::Off),
            (ModelTokens::As(source), _) => Known::As(source),
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

    /// Resizes the cache, which all snapshots share, to this one's limit.
    pub(crate) fn set_limits(&self) {
        self.cache.set_limit(self.limits.cache);
        self.metrics.cache_bytes(&self.cache);
    }

    /// Leaves the cache what a stage of scarce memory leaves it.
    pub(crate) fn shrink(&self, stage: MemoryStage) {
        let limit = match stage {
            MemoryStage::Calm => self.limits.cache,
            MemoryStage::Saving => self.limits.cache / 4,
            MemoryStage::Refusing | MemoryStage::Ending => 0,
        };
        self.cache.set_limit(limit);
        self.metrics.cache_bytes(&self.cache);
    }

    /// Whether anything is said of models.
    pub(crate) fn has_models(&self) -> bool {
        !self.models.is_empty()
    }

    /// The first whose name fits, else what the pool says.
    pub(super) fn source(&self, model: &str, pool: TokenSource) -> Source<'_> {
        let mut models = self.models.iter();
        let found = models.find(|(names, _)| names.iter().any(|name| name.matches(model)));
        match found {
            Some((_, Known::Local(local))) => Source::Local(local),
            Some((_, Known::As(source))) => Source::As(*source),
            None => Source::As(pool),
        }
    }
}
