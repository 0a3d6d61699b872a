//! Overrides of what a route's policies are: a trial that `policy deploy` sets up, a candidate that `policy promote`
//! makes the route's policy. They are kept beside the file's configuration, laid over it, and end where the file
//! changes the route. Pure: values in, values out.
//!
//! An override has the file's settings of the route at the time of the change. As long as they are the same, it
//! stands. Once they differ, the file takes precedence. So the lines of the override, written into the file, end it.

mod change;
mod report;
mod saved;
mod shared;
mod validation;

use conductor_config::{Config, Mark, PolicyConfig, PolicySource, RouteConfig, ShareConfig};
use routing::hex;
use serde_json::json;
use sha2::{Digest as _, Sha256};

pub use self::change::{RouteAction, RouteChange, RouteChangeError};
pub use self::report::OverrideReport;
pub use self::saved::SavedOverridesError;
pub use self::shared::SharedOverride;
use policy_store::builtin;

/// The policies of a route.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RoutePolicies {
    policy: String,
    canaries: Vec<ShareConfig>,
    shadows: Vec<String>,
    shadow_sample: f64,
}

/// Route that differs from the file.
#[derive(Debug, Clone, PartialEq)]
struct RouteOverride {
    /// [`fingerprint`] of the file's route.
    route: String,
    now: RoutePolicies,
}

/// All of them, each of another route.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteOverrides {
    all: Vec<RouteOverride>,
}

impl RoutePolicies {
    fn of(route: &RouteConfig) -> Self {
        Self {
            policy: route.policy.clone(),
            canaries: route.trials.canaries.clone(),
            shadows: route.trials.shadows.clone(),
            shadow_sample: route.trials.shadow_sample,
        }
    }

    fn apply(&self, route: &mut RouteConfig) {
        route.policy.clone_from(&self.policy);
        route.trials.canaries.clone_from(&self.canaries);
        route.trials.shadows.clone_from(&self.shadows);
        route.trials.shadow_sample = self.shadow_sample;
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        let canaries = self.canaries.iter().map(|canary| &canary.policy);
        std::iter::once(&self.policy).chain(canaries).chain(&self.shadows)
    }

    /// Returns true if the policy is a canary or a shadow.
    fn tries(&self, policy: &str) -> bool {
        let mut canaries = self.canaries.iter();
        canaries.any(|canary| canary.policy == policy) || self.shadows.iter().any(|shadow| shadow == policy)
    }

    /// Makes it a canary with this share. One that is a canary already keeps its place, as the order of the canaries
    /// determines their sessions.
    fn set_canary(&mut self, policy: &str, share: u32) {
        self.shadows.retain(|shadow| shadow != policy);
        match self.canaries.iter_mut().find(|canary| canary.policy == policy) {
            Some(canary) => canary.share = share,
            None => self.canaries.push(ShareConfig {
                policy: policy.to_owned(),
                share,
            }),
        }
    }

    /// Makes it a shadow. One that is a shadow already keeps its place.
    fn set_shadow(&mut self, policy: &str) {
        self.canaries.retain(|canary| canary.policy != policy);
        if !self.shadows.iter().any(|shadow| shadow == policy) {
            self.shadows.push(policy.to_owned());
        }
    }

    fn forget(&mut self, policy: &str) {
        self.canaries.retain(|canary| canary.policy != policy);
        self.shadows.retain(|shadow| shadow != policy);
    }
}

impl RouteOverrides {
    /// Lays them over the file's configuration. A policy that only they name comes from the policy folder.
    pub fn over(&self, config: &mut Config) {
        let mut named: Vec<String> = Vec::new();
        for route in &mut config.routes {
            if let Some(found) = self.of(&fingerprint(route)) {
                found.now.apply(route);
                named.extend(found.now.names().cloned());
            }
        }
        for name in named {
            if config.policies.iter().any(|policy| policy.name == name) {
                continue;
            }
            let source = match builtin::find(&name) {
                Some(builtin) => PolicySource::Builtin(builtin.name.to_owned()),
                None => PolicySource::Folder,
            };
            let policy = PolicyConfig::implied(&name, source, Mark::beginning());
            config.policies.push(policy);
        }
    }

    /// Returns what is left of them over a new file, and the policies of the routes that the file changed.
    pub fn under(&self, file: &Config) -> (Self, Vec<String>) {
        let routes: Vec<String> = file.routes.iter().map(fingerprint).collect();
        let (left, ended): (Vec<_>, Vec<_>) =
            (self.all.iter().cloned()).partition(|known| routes.contains(&known.route));
        let ended = ended.into_iter().map(|ended| ended.now.policy);
        (Self { all: left }, ended.collect())
    }

    /// Returns whether a policy that they name can only be in the policy folder.
    pub fn needs_folder(&self, file: &Config) -> bool {
        let mut names = self.all.iter().flat_map(|known| known.now.names());
        names.any(|name| {
            builtin::find(name).is_none() && file.policies.iter().all(|policy| policy.name != *name)
        })
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn of(&self, route: &str) -> Option<&RouteOverride> {
        self.all.iter().find(|known| known.route == route)
    }

    /// Returns the policies of a route of the file as they are now.
    fn now(&self, route: &RouteConfig) -> RoutePolicies {
        let found = self.of(&fingerprint(route));
        found.map_or_else(|| RoutePolicies::of(route), |found| found.now.clone())
    }

    /// Returns them with other policies for a route of the file; none of the route where these are the file's.
    fn with(&self, route: &RouteConfig, now: RoutePolicies) -> Self {
        let key = fingerprint(route);
        let mut all = self.all.clone();
        all.retain(|known| known.route != key);
        if now != RoutePolicies::of(route) {
            all.push(RouteOverride { route: key, now });
        }
        Self { all }
    }
}

/// Returns the fingerprint of a route of the file. It does not reveal header values.
fn fingerprint(route: &RouteConfig) -> String {
    let RoutePolicies {
        policy,
        canaries,
        shadows,
        shadow_sample,
    } = RoutePolicies::of(route);
    let canaries: Vec<_> = (canaries.iter())
        .map(|canary| (&canary.policy, canary.share))
        .collect();
    let matches = &route.matches;
    let route_settings = json!({
        "pool": route.pool, "models": matches.models, "path": matches.path, "headers": matches.headers,
        "policy": policy, "prefill": route.prefill_policy, "decode": route.decode_policy,
        "canaries": canaries, "shadows": shadows, "sample": shadow_sample,
    });
    hex(&Sha256::digest(route_settings.to_string()))
}

#[cfg(test)]
mod tests;
