//! The overrides as a file of the folder for what policies remember.

use conductor_config::ShareConfig;
use policy_store::builtin;
use serde::{Deserialize, Serialize};

use super::{RouteOverride, RouteOverrides, RoutePolicies};

/// Version of the file format.
const VERSION: u32 = 2;
/// Version of files that call built-in policies by their former names.
const BEFORE_RENAMES: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Saved {
    version: u32,
    overrides: Vec<SavedOverride>,
}

/// Override of one route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SavedOverride {
    /// Fingerprint of the file's route.
    route: String,
    policy: String,
    /// Canaries with their shares, in 10,000ths.
    canaries: Vec<(String, u32)>,
    shadows: Vec<String>,
    shadow_sample: f64,
}

impl RouteOverrides {
    /// Returns the file.
    pub fn encode(&self) -> Vec<u8> {
        let overrides = self.all.iter().map(RouteOverride::save);
        let saved = Saved {
            version: VERSION,
            overrides: overrides.collect(),
        };
        serde_json::to_vec_pretty(&saved).expect("it has only texts and numbers")
    }

    /// Returns the overrides of a file. Returns `None` if it is damaged or of an unknown version.
    pub fn decode(file: &[u8]) -> Option<Self> {
        let saved: Saved = serde_json::from_slice(file).ok()?;
        if ![BEFORE_RENAMES, VERSION].contains(&saved.version) {
            return None;
        }
        let name = |name: String| match saved.version {
            BEFORE_RENAMES => builtin::current_name(&name).to_owned(),
            _ => name,
        };
        let all = saved.overrides.into_iter().map(|known| RouteOverride {
            route: known.route.clone(),
            now: known.policies(&name),
        });
        Some(Self { all: all.collect() })
    }
}

impl RouteOverride {
    pub(super) fn save(&self) -> SavedOverride {
        let canaries = self.now.canaries.iter();
        SavedOverride {
            route: self.route.clone(),
            policy: self.now.policy.clone(),
            canaries: canaries
                .map(|canary| (canary.policy.clone(), canary.share))
                .collect(),
            shadows: self.now.shadows.clone(),
            shadow_sample: self.now.shadow_sample,
        }
    }
}

impl SavedOverride {
    /// Returns its policies, with the names that `name` makes of them.
    pub(super) fn policies(self, name: &impl Fn(String) -> String) -> RoutePolicies {
        let canary = |(policy, share)| ShareConfig {
            policy: name(policy),
            share,
        };
        RoutePolicies {
            policy: name(self.policy),
            canaries: self.canaries.into_iter().map(canary).collect(),
            shadows: self.shadows.into_iter().map(name).collect(),
            shadow_sample: self.shadow_sample,
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let canaries = self.canaries.iter().map(|(policy, _)| policy.as_str());
        let shadows = self.shadows.iter().map(String::as_str);
        std::iter::once(self.policy.as_str())
            .chain(canaries)
            .chain(shadows)
    }
}
