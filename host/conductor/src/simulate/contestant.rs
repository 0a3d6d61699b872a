//! The policies that are compared.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use policy_runtime::{CodeCache, EngineLimits, PolicyEngine, PolicySettings};
use routing::Policy;

use super::bad_input::BadInput;
use crate::builtin;
use crate::compiled::folder_of_user;
use crate::policy_library::chain;
use crate::policy_tools::subject::Subject;

/// The CPU time of a decision. A slow policy is shown as what it decides; what it costs is for `conductor policy bench`.
const PATIENCE: Duration = Duration::from_secs(1);

/// A policy with its parameters. Each run loads it anew: what it remembers is of that run alone.
#[derive(Debug)]
pub(super) struct Contestant {
    /// As it was asked for.
    pub(super) label: String,
    name: String,
    bytes: Cow<'static, [u8]>,
    /// Of the bytes, in hexadecimal.
    pub(super) sha256: String,
    settings: PolicySettings,
    engine: Arc<PolicyEngine>,
}

impl Contestant {
    /// Those that were asked for; where none was, all built-in ones that place requests.
    pub(super) fn all(asked: &[String]) -> anyhow::Result<Vec<Self>> {
        let engine = PolicyEngine::new(EngineLimits::default())?;
        // Of each policy many runs are made; it is compiled once.
        let cache = folder_of_user().and_then(|folder| CodeCache::open(&folder).ok());
        let engine = Arc::new(match cache {
            Some(cache) => engine.with_cache(cache),
            None => engine,
        });
        if !asked.is_empty() {
            return asked.iter().map(|asked| Self::find(asked, &engine)).collect();
        }
        let all = builtin::names().into_iter().map(|name| Self::find(name, &engine));
        let all: Vec<Self> = all.collect::<Result<_, _>>()?;
        let mut placing = Vec::new();
        for contestant in all {
            if contestant.load()?.scorer().is_none() {
                placing.push(contestant);
            }
        }
        Ok(placing)
    }

    fn find(asked: &str, engine: &Arc<PolicyEngine>) -> anyhow::Result<Self> {
        let (which, params) = split(asked);
        let params: serde_json::Map<String, serde_json::Value> = serde_json::from_str(params)
            .with_context(|| format!("failed to read the parameters of `{which}` as a JSON object"))
            .map_err(BadInput)?;
        let subject = Subject::find(Path::new(which))?;
        let contestant = Self {
            label: asked.to_owned(),
            sha256: subject.sha256(),
            name: subject.name,
            bytes: subject.bytes,
            settings: PolicySettings {
                params_json: serde_json::to_string(&params)?,
                cpu_budget: PATIENCE,
                wall_limit: PATIENCE * 10,
                ..PolicySettings::default()
            },
            engine: Arc::clone(engine),
        };
        contestant.load()?;
        Ok(contestant)
    }

    /// The policy, with nothing remembered.
    pub(super) fn load(&self) -> anyhow::Result<Arc<dyn Policy>> {
        let loaded = self
            .engine
            .load(&self.name, &self.bytes, &self.settings, Arc::default());
        let policy = loaded.map_err(|error| anyhow!("failed to load `{}`: {}", self.label, chain(&error)))?;
        Ok(Arc::new(policy))
    }
}

/// A policy and its parameters. The name of a file may have an equals sign.
pub(super) fn split(asked: &str) -> (&str, &str) {
    if Path::new(asked).is_file() {
        return (asked, "{}");
    }
    let at = asked.find("={").or_else(|| asked.find('='));
    at.map_or((asked, "{}"), |at| (&asked[..at], &asked[at + 1..]))
}
