//! Route matching: the first route whose every condition holds takes a request.

use std::sync::Arc;

use experiment::{ARM_SHARES, Assignment};
use http::{HeaderMap, HeaderName, HeaderValue};
use inference_api::Peek;
use routing::{Phase, PolicyVersions, hash_mix};
use thiserror::Error;
use wildmatch::WildMatch;

use crate::limits::admission::Objectives;
use crate::metrics::ProxyMetrics;
use crate::observe::decided_by::VersionNames;
use crate::observe::experiments::{Trial, TrialParts};
use crate::observe::policies::PolicyMetrics;
use crate::observe::shadow::Shadows;
use crate::request::context::stable_hash;
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
    /// Policy for whole requests, and for the legs that the next two policies do not decide.
    pub(crate) decider: Decider,
    prefill: Option<Decider>,
    decode: Option<Decider>,
    /// Policies of arms 1 and up.
    canaries: Box<[Decider]>,
    /// Experiment, where there are canaries.
    trial: Option<Arc<Trial>>,
    /// Objectives of the route's requests.
    pub(crate) objectives: Objectives,
    /// Shadow policies beside the arms, where there are any.
    pub(crate) shadows: Option<Shadows>,
    /// Hash of the route's pool and conditions, by which it is recognised over reloads.
    identity: u64,
}

/// Policy with its metrics.
#[derive(Debug)]
pub(crate) struct Decider {
    pub(crate) policy: Arc<PolicyVersions>,
    pub(crate) metrics: PolicyMetrics,
    pub(crate) names: VersionNames,
}

impl Decider {
    fn new(policy: Arc<PolicyVersions>, metrics: &ProxyMetrics) -> Self {
        Self {
            metrics: metrics.policy(policy.name()),
            names: VersionNames::of(&policy),
            policy,
        }
    }
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
    /// Builds the route. `before` are the active routes: results of the same route's arms and shadows are kept.
    pub(crate) fn new(plan: RoutePlan, before: &[Self], metrics: &ProxyMetrics) -> Self {
        let identity = identity(&plan.spec);
        let before = before.iter().find(|route| route.identity == identity);
        let trial = trial(&plan, identity, before, metrics);
        let known = before.and_then(|route| route.shadows.as_ref());
        let RoutePlan {
            spec, pool, headers, ..
        } = plan;
        let shadows = Shadows::next(&spec.trials, (&spec.pool, &title(&spec)), known, &metrics.shadows);
        let decider = |policy| Decider::new(policy, metrics);
        let canaries = spec.trials.canaries.into_iter();
        Self {
            canaries: canaries.map(|canary| decider(canary.policy)).collect(),
            trial,
            objectives: spec.objectives,
            shadows,
            identity,
            headers,
            models: spec.models.iter().map(|glob| WildMatch::new(glob)).collect(),
            path: spec.path.map(String::into_boxed_str),
            pool,
            decider: decider(spec.policy),
            prefill: spec.prefill_policy.map(decider),
            decode: spec.decode_policy.map(decider),
        }
    }

    /// Returns the policy that places that part of a request of that arm.
    pub(crate) fn decider(&self, phase: Phase, arm: usize) -> &Decider {
        if let Some(canary) = self.canary(arm) {
            return canary;
        }
        let own = match phase {
            Phase::Mixed => None,
            Phase::Prefill => self.prefill.as_ref(),
            Phase::Decode => self.decode.as_ref(),
        };
        own.unwrap_or(&self.decider)
    }

    /// Returns all policies of the route: those that decide, and its shadows.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &PolicyVersions> {
        let by_phase = self.prefill.iter().chain(&self.decode);
        let deciders = std::iter::once(&self.decider)
            .chain(by_phase)
            .chain(&self.canaries);
        let shadows = self.shadows.iter().flat_map(Shadows::policies);
        deciders.map(|decider| &*decider.policy).chain(shadows)
    }

    /// Returns `true` if each phase has a policy of its own.
    pub(crate) fn is_by_phase(&self) -> bool {
        self.prefill.is_some() || self.decode.is_some()
    }

    /// Returns `true` if any of an arm's policies needs the prompt's tokens.
    pub(crate) fn needs_tokens(&self, arm: usize) -> bool {
        if let Some(canary) = self.canary(arm) {
            return canary.policy.needs_tokens();
        }
        let by_phase = self.prefill.iter().chain(&self.decode);
        let mut deciders = std::iter::once(&self.decider).chain(by_phase);
        deciders.any(|decider| decider.policy.needs_tokens())
    }

    /// Returns the policy of an arm that is not the control.
    fn canary(&self, arm: usize) -> Option<&Decider> {
        self.canaries.get(arm.checked_sub(1)?)
    }

    /// Assigns a request to an arm. `None` where there is one arm only.
    pub(crate) fn assign(&self, session: Option<u64>, seed: u64) -> Option<Assignment> {
        Some(self.trial.as_ref()?.assign(session, seed))
    }

    /// Returns the experiment of the route, where it has several arms.
    pub(crate) fn trial(&self) -> Option<&Arc<Trial>> {
        self.trial.as_ref()
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
    before: Option<&Route>,
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
    };
    let known: Vec<&PolicyVersions> = before.map_or_else(Vec::new, |route| {
        let deciders = std::iter::once(&route.decider).chain(&route.canaries);
        deciders.map(|decider| &*decider.policy).collect()
    });
    let before = before.and_then(|route| Some((route.trial.as_ref()?, &*known)));
    Some(Trial::next(parts, before, &metrics.arms))
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
