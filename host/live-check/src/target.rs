//! Configured properties of each worker that the live check compares.

use std::sync::Arc;

use conductor_config::{KvEvents, Tokenize};
use kv_feed::CurveKeys;
use kv_plane::Target;
use routing::{Dialect, Role};
use tokenize::Model;
use wildmatch::WildMatch;
use worker_client::{Authorization, ConnectionsSpec};

/// One pool.
#[derive(Debug)]
pub struct PoolTarget {
    /// Name in the configuration.
    pub name: String,
    /// Configured dialect of the hand-over.
    pub dialect: Option<Dialect>,
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
    pub dialect: Option<Dialect>,
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
    /// Source of the pool, for models without a tokenizer of their own.
    pub of_pool: Tokenize,
    /// The router's own tokenizers.
    pub local: Arc<[LocalModel]>,
}

/// A tokenizer of the router.
#[derive(Debug)]
pub struct LocalModel {
    /// Globs of model names.
    names: Vec<WildMatch>,
    model: Arc<Model>,
}

/// Connection to a worker.
#[derive(Debug)]
pub struct ProbeAccess {
    /// Connections of its pool.
    pub connections: ConnectionsSpec,
    /// Key of its pool.
    pub authorization: Authorization,
}

impl LocalModel {
    /// Returns the tokenizer of the models whose names match one of the globs.
    #[must_use]
    pub fn new(globs: &[String], model: Arc<Model>) -> Self {
        Self {
            names: globs.iter().map(|glob| WildMatch::new(glob)).collect(),
            model,
        }
    }
}

impl Tokenizing {
    /// Returns the router's tokenizer of a model, the first whose names match.
    pub(crate) fn local(&self, model: &str) -> Option<&Arc<Model>> {
        let is_its = |local: &&LocalModel| local.names.iter().any(|name| name.matches(model));
        self.local.iter().find(is_its).map(|local| &local.model)
    }
}
