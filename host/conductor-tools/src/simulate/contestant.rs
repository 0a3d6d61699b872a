//! The policies that are compared.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use policy_runtime::{CodeCache, EngineLimits, PolicyEngine, PolicySettings};
use routing::{Policy, RequestFeature};

use crate::UsageError;
use crate::policy::component::ComponentFile;
use observability::error_chain;
use policy_store::builtin;
use policy_store::user_cache_folder;

/// CPU limit of a decision. A slow policy is simulated by its decisions; `conductor policy bench` measures its cost.
const PATIENCE: Duration = Duration::from_secs(1);

/// Policy with its parameters. Each run loads it again, so that its memory starts empty.
#[derive(Debug)]
pub(super) struct Contestant {
    /// Argument that names it.
    pub(super) label: String,
    name: String,
    bytes: Cow<'static, [u8]>,
    /// SHA-256 of the bytes, in hexadecimal.
    pub(super) sha256: String,
    /// Numbers of a request that it reads.
    pub(super) request_columns: Box<[RequestFeature]>,
    settings: PolicySettings,
    engine: Arc<PolicyEngine>,
}

impl Contestant {
    /// Returns the named policies. Without names, all built-in policies that place requests.
    pub(super) fn all(given: &[String]) -> anyhow::Result<Vec<Self>> {
        let engine = PolicyEngine::new(EngineLimits::default())?;
        // Of each policy many runs are made; it is compiled once.
        let cache = user_cache_folder().and_then(|folder| CodeCache::open(&folder).ok());
        let engine = Arc::new(match cache {
            Some(cache) => engine.with_cache(cache),
            None => engine,
        });
        let names = match given {
            [] => builtin::names(),
            given => given.iter().map(String::as_str).collect(),
        };
        let mut contestants = Vec::with_capacity(names.len());
        for name in names {
            let mut contestant = Self::find(name, &engine)?;
            let policy = contestant.load().map_err(UsageError::new)?;
            if !given.is_empty() || policy.scorer().is_none() {
                contestant.request_columns = policy.plan().request().into();
                contestants.push(contestant);
            }
        }
        Ok(contestants)
    }

    fn find(given: &str, engine: &Arc<PolicyEngine>) -> anyhow::Result<Self> {
        let (which, params) = split(given);
        let params: serde_json::Map<String, serde_json::Value> = serde_json::from_str(params)
            .with_context(|| format!("failed to read the parameters of `{which}` as a JSON object"))
            .map_err(UsageError::new)?;
        let subject = ComponentFile::find(Path::new(which)).map_err(UsageError::new)?;
        Ok(Self {
            label: given.to_owned(),
            sha256: subject.sha256(),
            request_columns: Box::default(),
            name: subject.name,
            bytes: subject.bytes,
            settings: PolicySettings {
                params_json: serde_json::to_string(&params)?,
                cpu_budget: PATIENCE,
                wall_limit: PATIENCE * 10,
                ..PolicySettings::default()
            },
            engine: Arc::clone(engine),
        })
    }

    /// Loads the policy, with nothing remembered.
    pub(super) fn load(&self) -> anyhow::Result<Arc<dyn Policy>> {
        let loaded = self
            .engine
            .load(&self.name, &self.bytes, &self.settings, Arc::default());
        let policy =
            loaded.map_err(|error| anyhow!("failed to load `{}`: {}", self.label, error_chain(&error)))?;
        Ok(Arc::new(policy))
    }
}

/// Returns a policy and its parameters. The name of a file may have an equals sign.
pub(super) fn split(given: &str) -> (&str, &str) {
    if Path::new(given).is_file() {
        return (given, "{}");
    }
    let at = given.find("={").or_else(|| given.find('='));
    at.map_or((given, "{}"), |at| (&given[..at], &given[at + 1..]))
}
