//! Configured properties of each worker that the live check compares.

use std::sync::Arc;

use conductor_config::{KvEvents, PdConfig, Tokenize};
use kv_feed::CurveKeys;
use kv_plane::Target;
use routing::{Dialect, Role};
use tokenize::Model;
use wildmatch::WildMatch;
use worker_client::{Authorization, ConnectionsSpec};

/// Configured dialect of a pool's hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolDialect {
    /// The pool splits no requests.
    Absent,
    /// The running router detects it (`auto`).
    Detected,
    /// The configuration names it.
    Named(Dialect),
}

/// One pool.
#[derive(Debug)]
pub struct PoolTarget {
    /// Name in the configuration.
    pub name: String,
    /// Dialect of the hand-over.
    pub dialect: PoolDialect,
    /// Configured workers.
    pub workers: Vec<WorkerTarget>,
}

/// One configured worker: one URL.
#[derive(Debug)]
pub struct WorkerTarget {
    /// Name in the configuration.
    pub name: String,
    /// Base URL.
    pub url: String,
    /// Configured role.
    pub role: Role,
    /// Dialect of its pool.
    pub dialect: PoolDialect,
    /// URL of its bootstrap server, `http://host:port`.
    pub bootstrap: Option<String>,
    /// Path of its health page.
    pub health_path: String,
    /// Models and adapters to serve.
    pub served: ServedModels,
    /// Publishers of its KV events.
    pub events: EventsTarget,
    /// Tokenization of its prompts.
    pub tokenizing: Tokenizing,
    /// Connection to it.
    pub access: ProbeAccess,
}

/// Models that a worker is configured to serve.
#[derive(Debug)]
pub struct ServedModels {
    /// Base models; none: any.
    pub models: Vec<String>,
    /// Adapters.
    pub adapters: Vec<String>,
    /// Page with the list of them. `None`: the router does not query it.
    pub list_path: Option<String>,
}

/// Configured KV events of a worker.
#[derive(Debug)]
pub struct EventsTarget {
    /// Publishers, or their discovery.
    pub events: KvEvents,
    /// Keys of the publishers.
    pub curve: Option<CurveKeys>,
    /// Target of discovery, which decides the trusted sources, if the worker is queried.
    pub discovery: Option<Target>,
}

/// Tokenization of prompts for a worker.
#[derive(Debug)]
pub struct Tokenizing {
    /// Method of the pool, for models without one of their own.
    pub of_pool: Tokenize,
    /// Methods of models, in the order of the configuration.
    pub of_models: Arc<[ModelTokens]>,
}

/// Tokenization of some models.
#[derive(Debug)]
pub struct ModelTokens {
    /// Globs of model names.
    names: Vec<WildMatch>,
    method: TokenMethod,
}

/// Method of tokenization.
#[derive(Debug, Clone)]
pub enum TokenMethod {
    /// By a tokenizer of the router.
    Local(Arc<Model>),
    /// By a method without files.
    As(Tokenize),
}

/// Connection to a worker.
#[derive(Debug)]
pub struct ProbeAccess {
    /// Connections of its pool.
    pub connections: ConnectionsSpec,
    /// Key of its pool.
    pub authorization: Authorization,
}

impl PoolDialect {
    /// Returns the dialect of a pool by its `pd`.
    #[must_use]
    pub fn of(pd: Option<&PdConfig>) -> Self {
        match pd {
            None => Self::Absent,
            Some(pd) => pd.dialect.map_or(Self::Detected, Self::Named),
        }
    }

    /// Returns the named dialect.
    pub(crate) fn named(self) -> Option<Dialect> {
        match self {
            Self::Named(dialect) => Some(dialect),
            Self::Absent | Self::Detected => None,
        }
    }
}

impl ModelTokens {
    /// Returns the tokenization of the models whose names match one of the globs.
    #[must_use]
    pub fn new(globs: &[String], method: TokenMethod) -> Self {
        Self {
            names: globs.iter().map(|glob| WildMatch::new(glob)).collect(),
            method,
        }
    }
}

impl Tokenizing {
    /// Returns the method of a model: the first whose names match, else that of the pool.
    pub(crate) fn of(&self, model: &str) -> TokenMethod {
        let is_its = |tokens: &&ModelTokens| tokens.names.iter().any(|name| name.matches(model));
        let own = self.of_models.iter().find(is_its);
        own.map_or(TokenMethod::As(self.of_pool), |own| own.method.clone())
    }
}
