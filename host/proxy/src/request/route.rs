//! Route matching: the first route whose every condition holds takes a request.

use std::sync::Arc;

use experiment::ARM_SHARES;
use http::{HeaderMap, HeaderName, HeaderValue};
use inference_api::Peek;
use routing::{PolicyVersions, hash_mix};
use thiserror::Error;
use wildmatch::WildMatch;

use crate::base::stable_hash::stable_hash;
use crate::dispatch::pool_state::PoolState;
use crate::dispatch::route_policies::{DecidingPolicy, RoutePolicies};
use crate::dispatch::shadow::Shadows;
use crate::limits::admission::AdmissionController;
use crate::observe::experiments::{Trial, TrialParts};
use crate::request::metrics::ProxyMetrics;
use crate::request::snapshot::{RouteSpec, Snapshot};

/// Error of an invalid route.
#[derive(Debug, Error)]
pub enum RouteError {
    /// The route's pool does not exist.
    #[error("find pool `{pool}`")]
    NoSuchPool {
        /// Name of the pool in the route.
        pool: String,
    },
    /// The route requires a header that no request can have.
    #[error("match header `{name}`")]
    BadHeader {
        /// Name of the header in the route.
        name: String,
        /// The error.
        #[source]
        source: http::Error,
    },
    /// The shares of the canaries exceed all requests.
    #[error("share out requests: the canaries have {share} of {ARM_SHARES} parts")]
    TooManyShares {
        /// The sum of their shares.
        share: u64,
    },
}

/// Route of a snapshot, ready to match.
#[derive(Debug)]
pub(crate) struct Route {
    models: Box<[WildMatch]>,
    path: Option<Box<str>>,
    headers: Box<[(HeaderName, HeaderValue)]>,
    /// Index of the pool in the snapshot.
    pub(crate) pool: usize,
    pub(crate) policies: Arc<RoutePolicies>,
    /// Hash of the route's pool and conditions, by which it is recognised over reloads.
    identity: u64,
}

/// Checked [`RouteSpec`].
#[derive(Debug)]
pub(crate) struct RoutePlan {
    spec: RouteSpec,
    /// Index of the pool in the snapshot.
    pool: usize,
    headers: Box<[(HeaderName, HeaderValue)]>,
    /// Buckets that the canaries leave to the route's own policy.
    control_share: u32,
}

impl RoutePlan {
    /// Checks a route to one of the pools of these names.
    pub(crate) fn new(spec: RouteSpec, pools: &[&str]) -> Result<Self, RouteError> {
        let share: u64 = spec
            .trials
            .canaries
            .iter()
            .map(|canary| u64::from(canary.share))
            .sum();
        let left = u64::from(ARM_SHARES).checked_sub(share);
        let left = left.ok_or(RouteError::TooManyShares { share })?;
        let headers = spec.headers.iter().map(|(name, value)| {
            parse_header(name, value).map_err(|source| RouteError::BadHeader {
                name: name.clone(),
                source,
            })
        });
        let headers = headers.collect::<Result<_, _>>()?;
        let pool = pools.iter().position(|pool| *pool == spec.pool);
        let pool = pool.ok_or_else(|| RouteError::NoSuchPool {
            pool: spec.pool.clone(),
        })?;
        Ok(Self {
            spec,
            pool,
            headers,
            control_share: u32::try_from(left).unwrap_or(ARM_SHARES),
        })
    }
}

impl Route {
    /// Builds the route of that index to one of `pools`. `before` are the active routes: results of the same route's
    /// arms and shadows are kept.
    pub(crate) fn new(
        index: usize,
        plan: RoutePlan,
        pools: &[Arc<PoolState>],
        before: &[Self],
        metrics: &ProxyMetrics,
    ) -> Self {
        let identity = identity(&plan.spec);
        let before = before.iter().find(|route| route.identity == identity);
        let before = before.map(|route| &*route.policies);
        let queue = &pools[plan.pool].queue.controller;
        let trial = trial(&plan, identity, queue, before, metrics);
        let known = before.and_then(|policies| policies.shadows.as_ref());
        let RoutePlan {
            spec, pool, headers, ..
        } = plan;
        let shadows = Shadows::next(
            &spec.trials,
            &spec.pool,
            &title(&spec),
            known,
            &metrics.dispatch.shadows,
        );
        let deciding = |versions| DecidingPolicy::new(versions, &metrics.observe.policies);
        let canaries = spec.trials.canaries.into_iter();
        let policies = RoutePolicies {
            route: index,
            current: before.map_or_else(Arc::default, |before| Arc::clone(&before.current)),
            canaries: canaries.map(|canary| deciding(canary.policy)).collect(),
            trial,
            shadows,
            objectives: spec.objectives,
            whole: deciding(spec.policy),
            prefill: spec.prefill_policy.map(deciding),
            decode: spec.decode_policy.map(deciding),
        };
        Self {
            policies: Arc::new(policies),
            identity,
            headers,
            models: spec.models.iter().map(|glob| WildMatch::new(glob)).collect(),
            path: spec.path.map(String::into_boxed_str),
            pool,
        }
    }

    fn matches(&self, model: &str, path: Option<&str>, headers: &HeaderMap) -> bool {
        self.takes_model(model) && self.takes_head(path, headers)
    }

    fn takes_model(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|glob| glob.matches(model))
    }

    fn takes_head(&self, path: Option<&str>, headers: &HeaderMap) -> bool {
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
        takes_path && takes_headers()
    }
}

/// Returns the experiment of a route that has canaries.
fn trial(
    plan: &RoutePlan,
    identity: u64,
    queue: &Arc<AdmissionController>,
    before: Option<&RoutePolicies>,
    metrics: &ProxyMetrics,
) -> Option<Arc<Trial>> {
    let spec = &plan.spec;
    let canaries = &spec.trials.canaries;
    if canaries.is_empty() {
        return None;
    }
    let control = (&*spec.policy, plan.control_share);
    let canaries = canaries.iter().map(|canary| (&*canary.policy, canary.share));
    let parts = TrialParts {
        pool: &spec.pool,
        route: title(spec),
        salt: hash_mix(identity),
        rule: spec.trials.rule,
        arms: std::iter::once(control).chain(canaries).collect(),
        held: Arc::clone(queue) as _,
    };
    let known: Vec<&PolicyVersions> = before.map_or_else(Vec::new, |before| {
        let arms = std::iter::once(&before.whole).chain(&before.canaries);
        arms.map(|policy| &*policy.versions).collect()
    });
    let before = before.and_then(|before| Some((before.trial.as_ref()?, &*known)));
    Some(Trial::next(parts, before, &metrics.observe.arms))
}

/// Returns a hash that identifies a route by its pool and its conditions, wherever it stands.
fn identity(spec: &RouteSpec) -> u64 {
    stable_hash(format!("{:?}", (&spec.pool, &spec.models, &spec.path, &spec.headers)).as_bytes())
}

/// Returns a short description of a route's conditions. A header's value may be a client's key: a hash distinguishes
/// it, and the value is never shown.
fn title(spec: &RouteSpec) -> String {
    const LONGEST: usize = 120;
    let models = (!spec.models.is_empty()).then(|| format!("model={}", spec.models.join(",")));
    let path = spec.path.as_ref().map(|path| format!("path={path}"));
    let headers = spec.headers.iter().map(|(name, value)| {
        let value = stable_hash(value.as_bytes()) & 0xffff;
        format!("header={name}#{value:04x}")
    });
    let words: Vec<String> = models.into_iter().chain(path).chain(headers).collect();
    let title: String = words.join(" ").chars().take(LONGEST).collect();
    if title.is_empty() { "*".to_owned() } else { title }
}

fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), http::Error> {
    Ok((HeaderName::try_from(name)?, HeaderValue::try_from(value)?))
}

impl Snapshot {
    /// Returns the index of the route that takes such a request. Without a path, conditions on it do not count.
    pub(crate) fn route(&self, model: &str, path: Option<&str>, headers: &HeaderMap) -> Option<usize> {
        self.routes
            .iter()
            .position(|route| route.matches(model, path, headers))
    }

    /// Returns `true` if the configuration or a worker of the route's pool has this name of a model.
    pub(crate) fn has_model_name(&self, route: usize, model: &str) -> bool {
        let is_named = |globs: &[WildMatch]| globs.iter().any(|glob| glob.pattern() == model);
        self.pool_of(route).workers.catalog.has_name(model)
            || is_named(&self.routes[route].models)
            || self.tokenizing.has_name(model)
    }

    /// Gives a request that names no model the one it means: the only one that its routes lead to. Where that is not
    /// known, it goes on without a name, to the first route that takes any.
    pub(crate) fn name_model(&self, peek: &mut Peek<'_>, path: Option<&str>, headers: &HeaderMap) {
        if peek.model.is_empty()
            && let Some(only) = self.only_model(path, headers)
        {
            peek.model = only.to_owned().into();
        }
    }

    /// Returns the only model that workers are known to serve behind the routes for such requests, adapters aside.
    /// `None` where a worker takes any name.
    fn only_model(&self, path: Option<&str>, headers: &HeaderMap) -> Option<&str> {
        let mut only: Option<&str> = None;
        for route in self.routes.iter().filter(|route| route.takes_head(path, headers)) {
            let pool = &self.pools[route.pool];
            for member in &pool.workers.members {
                let models = &member.worker.spec().models;
                if models.is_empty() {
                    return None;
                }
                let base = models
                    .iter()
                    .filter(|model| !pool.workers.catalog.is_configured(model));
                for model in base.filter(|model| route.takes_model(model)) {
                    if *only.get_or_insert(model) != &**model {
                        return None;
                    }
                }
            }
        }
        only
    }
}
