//! Which route takes a request: the first whose every condition holds.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use routing::{Phase, PolicyVersions};
use thiserror::Error;
use wildmatch::WildMatch;

use crate::metrics::{PolicyMetrics, ProxyMetrics};
use crate::snapshot::{PoolState, RouteSpec, Snapshot};

/// A route makes no sense.
#[derive(Debug, Error)]
pub enum RouteError {
    /// Its pool does not exist.
    #[error("find pool `{pool}`")]
    NoSuchPool {
        /// As named by the route.
        pool: String,
    },
    /// It asks for a header that no request can have.
    #[error("match header `{name}`")]
    BadHeader {
        /// As named by the route.
        name: String,
        /// What is wrong.
        #[source]
        source: http::Error,
    },
}

/// A route of a snapshot, ready to match.
#[derive(Debug)]
pub(crate) struct Route {
    models: Box<[WildMatch]>,
    path: Option<Box<str>>,
    headers: Box<[(HeaderName, HeaderValue)]>,
    /// Index of the pool in the snapshot.
    pub(crate) pool: usize,
    /// Decides on whole requests, and on what the next two do not.
    pub(crate) decider: Decider,
    prefill: Option<Decider>,
    decode: Option<Decider>,
}

/// A policy with its metrics.
#[derive(Debug)]
pub(crate) struct Decider {
    pub(crate) policy: Arc<PolicyVersions>,
    pub(crate) metrics: PolicyMetrics,
}

impl Decider {
    fn new(policy: Arc<PolicyVersions>, metrics: &ProxyMetrics) -> Self {
        Self {
            metrics: metrics.policy(policy.name()),
            policy,
        }
    }
}

impl Route {
    pub(crate) fn new(
        spec: RouteSpec,
        pools: &[Arc<PoolState>],
        metrics: &ProxyMetrics,
    ) -> Result<Self, RouteError> {
        let pool = pools.iter().position(|pool| *pool.name == *spec.pool);
        let headers = spec.headers.into_iter().map(|(name, value)| {
            parse_header(&name, &value).map_err(|source| RouteError::BadHeader { name, source })
        });
        Ok(Self {
            headers: headers.collect::<Result<_, _>>()?,
            models: spec.models.iter().map(|glob| WildMatch::new(glob)).collect(),
            path: spec.path.map(String::into_boxed_str),
            pool: pool.ok_or(RouteError::NoSuchPool { pool: spec.pool })?,
            decider: Decider::new(spec.policy, metrics),
            prefill: spec.prefill_policy.map(|policy| Decider::new(policy, metrics)),
            decode: spec.decode_policy.map(|policy| Decider::new(policy, metrics)),
        })
    }

    /// What places that part of a request.
    pub(crate) fn decider(&self, phase: Phase) -> &Decider {
        let own = match phase {
            Phase::Mixed => None,
            Phase::Prefill => self.prefill.as_ref(),
            Phase::Decode => self.decode.as_ref(),
        };
        own.unwrap_or(&self.decider)
    }

    /// Whether each phase has a policy of its own.
    pub(crate) fn is_by_phase(&self) -> bool {
        self.prefill.is_some() || self.decode.is_some()
    }

    /// Whether any of its policies wants to know the prompt's tokens.
    pub(crate) fn needs_tokens(&self) -> bool {
        [Phase::Mixed, Phase::Prefill, Phase::Decode]
            .into_iter()
            .any(|phase| self.decider(phase).policy.needs_tokens())
    }

    fn matches(&self, model: &str, path: Option<&str>, headers: &HeaderMap) -> bool {
        let takes_model = self.models.is_empty() || self.models.iter().any(|glob| glob.matches(model));
        let takes_path = match (&self.path, path) {
            (Some(wanted), Some(path)) => **wanted == *path,
            _ => true,
        };
        let takes_headers = || {
            let has = |(name, value): &(HeaderName, HeaderValue)| {
                headers.get_all(name).iter().any(|present| present == value)
            };
            self.headers.iter().all(has)
        };
        takes_model && takes_path && takes_headers()
    }
}

fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), http::Error> {
    Ok((HeaderName::try_from(name)?, HeaderValue::try_from(value)?))
}

impl Snapshot {
    /// Index of the route that takes such a request. Without a path, conditions on it do not count.
    pub(crate) fn route(&self, model: &str, path: Option<&str>, headers: &HeaderMap) -> Option<usize> {
        self.routes
            .iter()
            .position(|route| route.matches(model, path, headers))
    }
}
