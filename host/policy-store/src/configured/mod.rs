//! Policies of a configuration: the components to load, their folder, and the names of shadow copies.

mod pipelines;
mod shadow_name;
mod unavailable;
mod uploads;

use std::path::{Path, PathBuf};

use conductor_config::{Config, PolicyConfig, PolicySource as ConfiguredSource};
use local_files::ConfigSource;
use local_files::policy_folder::{is_of_folder, policies_in};
use policy_runtime::{PolicySettings, Sessions};
use routing::CircuitSpec;

pub use self::pipelines::{components, pipeline_of, scorers_of};
pub use self::shadow_name::{shadow_name, shadowed};
pub use self::unavailable::{awaited_policies, unavailable_policies};
pub use self::uploads::{UploadError, UploadRules, UploadTarget};
use crate::builtin;
use crate::library::{Permit, PolicySource, WantedPolicy};
use crate::settings::policy_settings;

/// Returns every component that is configured, named by a route or a pipeline, or lies in the policy folder. Shadow
/// policies are listed twice.
#[must_use]
pub fn wanted_policies(config: &Config, source: &ConfigSource) -> Vec<WantedPolicy> {
    let files = PolicyFiles::of(config, source);
    let configured = config.policies.iter();
    let mut wanted: Vec<WantedPolicy> = configured.filter_map(|policy| files.configured(policy)).collect();
    let in_folder = files.folder.iter().flat_map(|folder| policies_in(folder));
    for (name, path) in in_folder {
        let is_builtin = builtin::find(&name).is_some();
        if !is_builtin && config.policies.iter().all(|policy| policy.name != name) {
            wanted.push(files.in_folder(name, path));
        }
    }
    mark_scorers(config, &mut wanted);
    wanted.extend(shadows(config, &wanted));
    wanted
}

/// Files of policies, with the permits of their bytes.
struct PolicyFiles<'a> {
    source: &'a ConfigSource,
    folder: Option<PathBuf>,
    /// Permit of the files in the folder, if the configuration lists the allowed ones.
    listed: Option<Permit>,
}

impl<'a> PolicyFiles<'a> {
    fn of(config: &Config, source: &'a ConfigSource) -> Self {
        let listed = config.policy_dir_allow.as_ref();
        Self {
            source,
            folder: policy_folder(config, source),
            listed: listed.map(|hashes| Permit::Listed(hashes.iter().map(|hash| hash.0).collect())),
        }
    }

    /// Returns the permit of a file. The list restricts all files of the folder, by any path.
    fn permit(&self, path: &Path) -> Permit {
        match (&self.listed, &self.folder) {
            (Some(listed), Some(folder)) if is_of_folder(path, folder) => listed.clone(),
            _ => Permit::Any,
        }
    }

    /// Returns the component of a configured policy. `None` for a pipeline, and for a file of the policy folder if
    /// there is no folder: such a policy is unavailable.
    fn configured(&self, policy: &PolicyConfig) -> Option<WantedPolicy> {
        let source = match &policy.source {
            ConfiguredSource::Builtin(name) => PolicySource::Builtin(name.clone()),
            ConfiguredSource::File(path) => PolicySource::File(self.source.resolve(path)),
            ConfiguredSource::Folder => {
                let file = format!("{}.wasm", policy.name);
                PolicySource::File(self.folder.as_ref()?.join(file))
            }
            ConfiguredSource::Pipeline(_) => return None,
        };
        let permit = match (&policy.sha256, &source) {
            (Some(pinned), _) => Permit::Pinned(pinned.0),
            (None, PolicySource::File(path)) => self.permit(path),
            (None, PolicySource::Builtin(_)) => Permit::Any,
        };
        Some(WantedPolicy {
            name: policy.name.clone(),
            source,
            settings: policy_settings(policy),
            circuit: policy.circuit,
            permit,
            sessions: policy.sessions as usize,
            scores: false,
        })
    }

    /// Returns the policy of a file in the folder that no table configures.
    fn in_folder(&self, name: String, path: PathBuf) -> WantedPolicy {
        WantedPolicy {
            name,
            permit: self.permit(&path),
            sessions: Sessions::DEFAULT_LIMIT,
            source: PolicySource::File(path),
            settings: PolicySettings::default(),
            circuit: CircuitSpec::default(),
            scores: false,
        }
    }
}

/// Returns true if a policy of that name comes from a file.
#[must_use]
pub fn takes_file(config: &Config, name: &str) -> bool {
    let mut named = config.policies.iter().filter(|policy| policy.name == name);
    named.any(|policy| policy.source.is_file())
}

/// Returns the folder for policy memory, if there is one.
#[must_use]
pub fn state_folder(config: &Config, source: &ConfigSource) -> Option<PathBuf> {
    config
        .server
        .policy_state
        .as_ref()
        .map(|folder| source.resolve(folder))
}

/// Returns the folder whose `.wasm` files are policies, if there is one.
#[must_use]
pub fn policy_folder(config: &Config, source: &ConfigSource) -> Option<PathBuf> {
    config.policy_dir.as_ref().map(|folder| source.resolve(folder))
}

/// Returns the twins of those policies that some route has as a shadow, by themselves or in a pipeline.
fn shadows(config: &Config, wanted: &[WantedPolicy]) -> Vec<WantedPolicy> {
    let shadows = config.routes.iter().flat_map(|route| &route.trials.shadows);
    let named: Vec<&str> = shadows.flat_map(|name| components(config, name)).collect();
    let is_shadow = |name: &String| named.contains(&name.as_str());
    let shadows = wanted.iter().filter(|policy| is_shadow(&policy.name));
    let twin = |policy: &WantedPolicy| WantedPolicy {
        name: shadow_name(&policy.name),
        ..policy.clone()
    };
    shadows.map(twin).collect()
}

/// Marks the policies that are scorers of a pipeline.
fn mark_scorers(config: &Config, wanted: &mut [WantedPolicy]) {
    let pipelines = || config.policies.iter().filter_map(|policy| policy.pipeline());
    for policy in wanted {
        policy.scores = pipelines().any(|pipeline| pipeline.spec.scorers().any(|name| name == policy.name));
    }
}
