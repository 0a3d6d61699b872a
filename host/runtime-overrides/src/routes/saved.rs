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

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SavedOverride {
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
        let overrides = self.all.iter().map(|known| SavedOverride {
            route: known.route.clone(),
            policy: known.now.policy.clone(),
            canaries: (known.now.canaries.iter())
                .map(|canary| (canary.policy.clone(), canary.share))
                .collect(),
            shadows: known.now.shadows.clone(),
            shadow_sample: known.now.shadow_sample,
        });
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
            route: known.route,
            now: RoutePolicies {
                policy: name(known.policy),
                canaries: (known.canaries.into_iter())
                    .map(|(policy, share)| ShareConfig {
                        policy: name(policy),
                        share,
                    })
                    .collect(),
                shadows: known.shadows.into_iter().map(name).collect(),
                shadow_sample: known.shadow_sample,
            },
        });
        Some(Self { all: all.collect() })
    }
}
