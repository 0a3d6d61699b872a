//! The overrides as a file of the folder for what policies remember.

use conductor_config::ShareConfig;
use policy_store::builtin;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::validation;
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

/// Override of one route. Deserialising it validates names and shares: files and other routers are not trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SavedOverride {
    /// Fingerprint of the file's route.
    route: String,
    #[serde(deserialize_with = "validation::name")]
    policy: String,
    /// Canaries with their shares, in 10,000ths.
    #[serde(deserialize_with = "validation::canaries")]
    canaries: Vec<(String, u32)>,
    #[serde(deserialize_with = "validation::names")]
    shadows: Vec<String>,
    #[serde(deserialize_with = "validation::sample")]
    shadow_sample: f64,
}

/// Reason for not reading a file.
#[derive(Debug, Error)]
pub enum SavedOverridesError {
    /// The content is not that of such a file, or names and shares are invalid.
    #[error("its content is invalid")]
    Content(#[from] serde_json::Error),
    /// The version of the format is unknown.
    #[error("it is of version {0}, and this router reads versions {BEFORE_RENAMES} to {VERSION}")]
    Version(u32),
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

    /// Returns the overrides of a file.
    ///
    /// # Errors
    /// [`SavedOverridesError`] if it is damaged, has an invalid name or share, or is of an unknown version.
    pub fn decode(file: &[u8]) -> Result<Self, SavedOverridesError> {
        let saved: Saved = serde_json::from_slice(file)?;
        if ![BEFORE_RENAMES, VERSION].contains(&saved.version) {
            return Err(SavedOverridesError::Version(saved.version));
        }
        let name = |name: String| match saved.version {
            BEFORE_RENAMES => builtin::current_name(&name).to_owned(),
            _ => name,
        };
        let all = saved.overrides.into_iter().map(|known| RouteOverride {
            route: known.route.clone(),
            now: known.policies(&name),
        });
        Ok(Self { all: all.collect() })
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
